// Binds the preprocessing kernels: plans over text and over Arrow columns, and vocabularies.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "etl_spread.hpp"
#include "etl_text.hpp"
#include "etl_vocabulary.hpp"

namespace nb = nanobind;
using namespace temper_etl;

namespace {

enum class Source : int { I8, I16, I32, I64, U8, U16, U32, F32, F64, Text32, Text64 };

// One Arrow array: addresses of its buffers and the offset of its first element.
struct Array {
    int column;
    Source source;
    const char *values;       // numbers, or the bytes of text
    const char *offsets;      // of text
    const uint8_t *validity;  // bitmap, null when all are valid
    int64_t offset, rows;
    char *out;
};

bool valid(const Array &a, int64_t k) {
    int64_t at = a.offset + k;
    return !a.validity || (a.validity[at >> 3] >> (at & 7) & 1);
}

void put(const Column &col, char *out, int64_t k, uint64_t bits) {
    std::memcpy(out + size_t(k) * col.width(), &bits, col.width());
}

template <typename T>
void integers(const Column &col, const Array &a, std::vector<std::tuple<int64_t, int>> &bad) {
    const T *in = reinterpret_cast<const T *>(a.values) + a.offset;
    for (int64_t k = 0; k < a.rows; k++) {
        uint64_t bits = col.missing;
        if (valid(a, k)) {
            int64_t v = int64_t(in[k]);
            if (!col.fits(v)) bad.emplace_back(k, BadRange);
            else if (col.kind == Kind::Float) bits = col.one(float(in[k]));
            else bits = col.kind == Kind::Int ? col.from_int(v)
                        : v >= 0              ? col.from_hex(uint64_t(v))
                                              : col.one(v);
        }
        put(col, a.out, k, bits);
    }
}

template <typename T>
void floats(const Column &col, const Array &a, std::vector<std::tuple<int64_t, int>> &bad) {
    const T *in = reinterpret_cast<const T *>(a.values) + a.offset;
    constexpr int64_t kStep = 1024;
    float f[kStep];
    int64_t i[kStep];
    for (int64_t from = 0; from < a.rows; from += kStep) {
        int64_t n = std::min(kStep, a.rows - from);
        for (int64_t k = 0; k < n; k++) f[k] = float(in[from + k]);
        bool is_float = col.run(i, f, size_t(n), true);
        for (int64_t k = 0; k < n; k++) {
            T v = in[from + k];
            bool present = valid(a, from + k) && !std::isnan(v);
            if (present && std::isinf(v)) {
                bad.emplace_back(from + k, BadRange);
                present = false;
            }
            put(col, a.out, from + k, present ? col.bits(is_float, i[k], f[k]) : col.missing);
        }
    }
}

template <typename T>
void text(const Column &col, const Array &a, std::vector<std::tuple<int64_t, int>> &bad) {
    const T *at = reinterpret_cast<const T *>(a.offsets) + a.offset;
    for (int64_t k = 0; k < a.rows; k++) {
        uint64_t bits = col.missing;
        if (valid(a, k)) {
            const char *p = a.values + at[k];
            uint64_t word;
            uint32_t value;
            if (at[k + 1] - at[k] == 8 && col.kind == Kind::Hex &&
                (std::memcpy(&word, p, 8), hex8(word, value)) && col.fits(value)) {
                bits = col.from_hex(value);
            } else if (at[k + 1] > at[k]) {
                Reason reason = read_field(col, p, a.values + at[k + 1], bits);
                if (reason != Good) bad.emplace_back(k, reason), bits = col.missing;
            }
        }
        put(col, a.out, k, bits);
    }
}

class Plan {
public:
    // columns: (kind, out, fill, [(code, low or None, high or None, edges)])
    explicit Plan(nb::list columns) {
        for (nb::handle item : columns) {
            nb::tuple spec = nb::cast<nb::tuple>(item);
            Column col;
            col.kind = Kind(nb::cast<int>(spec[0]));
            col.out = Out(nb::cast<int>(spec[1]));
            col.fill = nb::cast<double>(spec[2]);
            for (nb::handle entry : nb::cast<nb::list>(spec[3])) {
                nb::tuple step = nb::cast<nb::tuple>(entry);
                bool low = !step[1].is_none(), high = !step[2].is_none();
                col.steps.push_back({Code(nb::cast<int>(step[0])), low, high,
                                     low ? nb::cast<double>(step[1]) : 0.0,
                                     high ? nb::cast<double>(step[2]) : 0.0,
                                     nb::cast<std::vector<double>>(step[3])});
            }
            col.finish();
            columns_.push_back(std::move(col));
        }
    }

    nb::tuple parse(int fd, uintptr_t base, int64_t size, int64_t begin, int64_t end,
                    std::vector<uintptr_t> outs, int64_t at, int64_t capacity,
                    const std::string &delimiter, int policy, int threads) const {
        if (outs.size() != columns_.size() || delimiter.size() != 1)
            throw std::invalid_argument("one output address a column, one delimiter character");
        std::vector<char *> to;
        for (uintptr_t address : outs) to.push_back(reinterpret_cast<char *>(address));
        Text source{fd, reinterpret_cast<const char *>(base), size};
        Batch batch;
        {
            nb::gil_scoped_release release;
            Reader reader(columns_, delimiter[0], Policy(policy));
            batch = reader.run(source, begin, std::min(end, size), to, at, capacity, threads);
        }
        nb::list bad, reasons;
        for (const Bad &b : batch.bad)
            bad.append(nb::make_tuple(b.line, b.column, b.reason,
                                      nb::bytes(b.text.data(), b.text.size())));
        for (int64_t n : batch.reasons) reasons.append(n);
        return nb::make_tuple(batch.rows, batch.lines, batch.next, reasons, bad, batch.fault);
    }

    // arrays: (column, source, values, offsets, validity, offset, rows, out) by address.
    // Returns, for each array, the rows that were malformed as (row, reason).
    std::vector<std::vector<std::tuple<int64_t, int>>> apply(nb::list arrays, int threads) const {
        std::vector<Array> work;
        for (nb::handle item : arrays) {
            nb::tuple t = nb::cast<nb::tuple>(item);
            auto address = [&](int k) { return nb::cast<uintptr_t>(t[size_t(k)]); };
            work.push_back({nb::cast<int>(t[0]), Source(nb::cast<int>(t[1])),
                            reinterpret_cast<const char *>(address(2)),
                            reinterpret_cast<const char *>(address(3)),
                            reinterpret_cast<const uint8_t *>(address(4)),
                            nb::cast<int64_t>(t[5]), nb::cast<int64_t>(t[6]),
                            reinterpret_cast<char *>(address(7))});
        }
        std::vector<std::vector<std::tuple<int64_t, int>>> bad(work.size());
        nb::gil_scoped_release release;
        spread(work.size(), threads, [&](size_t k, size_t) { one(work[k], bad[k]); });
        return bad;
    }

private:
    void one(const Array &a, std::vector<std::tuple<int64_t, int>> &bad) const {
        const Column &col = columns_[size_t(a.column)];
        switch (a.source) {
            case Source::I8: return integers<int8_t>(col, a, bad);
            case Source::I16: return integers<int16_t>(col, a, bad);
            case Source::I32: return integers<int32_t>(col, a, bad);
            case Source::I64: return integers<int64_t>(col, a, bad);
            case Source::U8: return integers<uint8_t>(col, a, bad);
            case Source::U16: return integers<uint16_t>(col, a, bad);
            case Source::U32: return integers<uint32_t>(col, a, bad);
            case Source::F32: return floats<float>(col, a, bad);
            case Source::F64: return floats<double>(col, a, bad);
            case Source::Text32: return text<int32_t>(col, a, bad);
            case Source::Text64: return text<int64_t>(col, a, bad);
        }
    }

    std::vector<Column> columns_;
};

// Applies vocabularies to columns, one thread a column so that order of appearance is exact.
// work: (vocabulary, mode, input, input is int64, output int32, rows, first identifier, identifier
// of unseen keys); modes: 0 grow, 1 count, 2 map. Returns the unseen keys of each.
std::vector<int64_t> vocabularies(nb::list work, int threads) {
    struct Task {
        Vocabulary *vocabulary;
        int mode;
        const char *in;
        bool wide;
        int32_t *out;
        size_t rows;
        int32_t base, oov;
    };
    std::vector<Task> tasks;
    for (nb::handle item : work) {
        nb::tuple t = nb::cast<nb::tuple>(item);
        tasks.push_back({nb::cast<Vocabulary *>(t[0]), nb::cast<int>(t[1]),
                         reinterpret_cast<const char *>(nb::cast<uintptr_t>(t[2])),
                         nb::cast<bool>(t[3]),
                         reinterpret_cast<int32_t *>(nb::cast<uintptr_t>(t[4])),
                         nb::cast<size_t>(t[5]), nb::cast<int32_t>(t[6]),
                         nb::cast<int32_t>(t[7])});
    }
    std::vector<int64_t> unseen(tasks.size(), 0);
    nb::gil_scoped_release release;
    spread(tasks.size(), threads, [&](size_t k, size_t) {
        const Task &t = tasks[k];
        auto apply = [&](auto *in) {
            if (t.mode == 0) t.vocabulary->grow(in, t.out, t.rows, t.base);
            else if (t.mode == 1) t.vocabulary->count(in, t.rows);
            else unseen[k] = t.vocabulary->map(in, t.out, t.rows, t.base, t.oov);
        };
        if (t.wide) apply(reinterpret_cast<const int64_t *>(t.in));
        else apply(reinterpret_cast<const int32_t *>(t.in));
    });
    return unseen;
}

}  // namespace

void bind_etl(nb::module_ &m) {
    nb::class_<Plan>(m, "EtlPlan")
        .def(nb::init<nb::list>())
        .def("parse", &Plan::parse)
        .def("apply", &Plan::apply);
    nb::class_<Vocabulary>(m, "EtlVocabulary")
        .def(nb::init<int64_t, int64_t>())
        .def("__len__", [](const Vocabulary &v) { return v.keys.size(); })
        .def_prop_ro("full", [](const Vocabulary &v) { return v.full; })
        .def("add", [](Vocabulary &v, nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig> keys) {
            v.add(keys.data(), keys.size());
        })
        .def("keys", [](const Vocabulary &v, nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig> to,
                        size_t from) {
            std::copy(v.keys.begin() + long(from), v.keys.end(), to.data());
        })
        .def("counts", [](const Vocabulary &v, nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig> to) {
            std::copy(v.counts.begin(), v.counts.end(), to.data());
        });
    m.def("etl_vocabularies", &vocabularies);
}
