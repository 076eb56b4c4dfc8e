// Binds the preprocessing kernels: plans over text, Arrow columns and Parquet, and vocabularies.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <stdexcept>

#include "etl_parquet.hpp"
#include "etl_spread.hpp"
#include "etl_text.hpp"
#include "etl_vocabulary.hpp"

namespace nb = nanobind;
using namespace temper_etl;

namespace {

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
    std::vector<BadRows> apply(nb::list arrays, int threads) const {
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
        std::vector<BadRows> bad(work.size());
        nb::gil_scoped_release release;
        spread(work.size(), threads, [&](size_t k, size_t) {
            apply_chain(columns_[size_t(work[k].column)], work[k], bad[k]);
        });
        return bad;
    }

    const Column &column(size_t index) const { return columns_.at(index); }

private:
    std::vector<Column> columns_;
};

// A decompressor out of Python: (address, size, size decompressed) -> Arrow buffer.
parquet::Codec python_codec(nb::object call) {
    if (call.is_none()) return {};
    return [call](const uint8_t *in, size_t size, size_t room) {
        nb::gil_scoped_acquire locked;
        try {
            nb::object buffer = call(reinterpret_cast<uintptr_t>(in), size, room);
            if (nb::cast<size_t>(buffer.attr("size")) < room) throw parquet::Short();
            auto address = nb::cast<uintptr_t>(buffer.attr("address"));
            return parquet::Memory(reinterpret_cast<uint8_t *>(address),
                                   [owner = new nb::object(buffer)](const uint8_t *) {
                                       nb::gil_scoped_acquire locked_again;
                                       delete owner;
                                   });
        } catch (nb::python_error &error) {
            throw std::runtime_error(error.what());
        }
    };
}

// Row groups of a footer: (rows, [(type, codec, values, size decompressed, size, data page,
// dictionary page, encodings as bits, whether the chunk is in another file or encrypted)]).
nb::list parquet_footer(nb::bytes footer) {
    const auto *from = static_cast<const uint8_t *>(footer.data());
    nb::list groups;
    for (const parquet::GroupMeta &group : parquet::read_footer({from, from + footer.size()})) {
        nb::list chunks;
        for (const parquet::ChunkMeta &c : group.chunks)
            chunks.append(nb::make_tuple(c.type, c.codec, c.values, c.unpacked, c.size, c.data_page,
                                         c.dictionary_page, c.encodings, c.elsewhere));
        groups.append(nb::make_tuple(group.rows, chunks));
    }
    return groups;
}

// The column chunks of one row group, read side by side from first row to last.
class RowGroup {
public:
    // chunks: (column, source, nullable, first byte, byte behind it, decompressor or None)
    RowGroup(const Plan &plan, int fd, int64_t rows, nb::list chunks) {
        for (nb::handle item : chunks) {
            nb::tuple t = nb::cast<nb::tuple>(item);
            chunks_.push_back(std::make_unique<parquet::Chunk>(
                plan.column(nb::cast<size_t>(t[0])), Source(nb::cast<int>(t[1])),
                nb::cast<bool>(t[2]), Text{fd, nullptr, nb::cast<int64_t>(t[4])},
                nb::cast<int64_t>(t[3]), rows, python_codec(t[5])));
        }
    }

    RowGroup(const RowGroup &) = delete;

    // Writes the next rows to each chunk's address. Returns, for each chunk, malformed rows as
    // (row, reason, text). Throws when the file is not as the format wants it.
    nb::list read(int64_t rows, std::vector<uintptr_t> outs, int threads) {
        if (outs.size() != chunks_.size()) throw std::invalid_argument("one address a chunk");
        std::vector<std::vector<Bad>> bad(chunks_.size());
        std::mutex mutex;
        std::string fault;
        {
            nb::gil_scoped_release release;
            spread(chunks_.size(), threads, [&](size_t k, size_t) {
                try {
                    chunks_[k]->read(rows, reinterpret_cast<char *>(outs[k]), bad[k]);
                } catch (const std::exception &error) {
                    std::lock_guard<std::mutex> lock(mutex);
                    fault = error.what();
                }
            });
        }
        if (!fault.empty()) throw std::runtime_error(fault);
        nb::list all;
        for (const auto &found : bad) {
            nb::list one;
            for (const Bad &b : found)
                one.append(nb::make_tuple(b.line, b.reason, nb::bytes(b.text.data(), b.text.size())));
            all.append(one);
        }
        return all;
    }

private:
    std::vector<std::unique_ptr<parquet::Chunk>> chunks_;
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
    nb::class_<RowGroup>(m, "EtlRowGroup")
        .def(nb::init<const Plan &, int, int64_t, nb::list>(), nb::keep_alive<1, 2>())
        .def("read", &RowGroup::read);
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
    m.def("etl_parquet_footer", &parquet_footer);
}
