// Binds the Parquet writer: columns encoded on all threads, then the pieces of the file in order.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "etl_parquet_write.hpp"
#include "etl_spread.hpp"

namespace nb = nanobind;
using namespace temper_etl;

namespace {

constexpr char kMagic[] = "PAR1";

using Given = std::tuple<std::string, int, uintptr_t>;  // name, physical type, values' address

// One file of one row group, all columns required. Its memory serves the next part again.
class ParquetFile {
public:
    ParquetFile() = default;
    ParquetFile(const ParquetFile &) = delete;

    void encode(const std::vector<Given> &columns, size_t rows, const std::string &created_by,
                int threads) {
        nb::gil_scoped_release release;
        columns_.resize(columns.size());
        scratch_.resize(size_t(std::max(threads, 1)));
        spread(columns.size(), threads, [&](size_t k, size_t thread) {
            const auto &[name, type, address] = columns[k];
            columns_[k].encode(Physical(type), reinterpret_cast<const char *>(address), rows,
                               scratch_[thread]);
        });
        Compact footer;
        describe(footer, columns, rows, created_by);
        tail_ = std::move(footer.text);
        const uint32_t size = uint32_t(tail_.size());
        tail_.append(reinterpret_cast<const char *>(&size), 4).append(kMagic, 4);
    }

    // Views of the file's bytes in order, good until the next encode().
    static nb::list pieces(nb::handle self) {
        const ParquetFile &file = nb::cast<const ParquetFile &>(self);
        nb::list found;
        auto add = [&](const char *data, size_t size) {
            if (size) found.append(nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(
                data, {size}, self));
        };
        add(kMagic, 4);
        for (const EncodedColumn &column : file.columns_) {
            add(column.dictionary.data(), column.dictionary.size());
            add(column.pages.data(), column.pages.size());
        }
        add(file.tail_.data(), file.tail_.size());
        return found;
    }

private:
    void describe(Compact &to, const std::vector<Given> &columns, size_t rows,
                  const std::string &created_by) const {
        to.open();
        to.number(1, Compact::I32, 2);  // version of the format
        to.list(2, Compact::Struct, columns.size() + 1);
        to.open();
        to.string(4, "schema");
        to.number(5, Compact::I32, int64_t(columns.size()));
        to.close();
        for (const auto &[name, type, address] : columns) {
            to.open();
            to.number(1, Compact::I32, type);
            to.number(3, Compact::I32, 0);  // required
            to.string(4, name);
            to.close();
        }
        to.number(3, Compact::I64, int64_t(rows));
        to.list(4, Compact::Struct, rows ? 1 : 0);
        if (rows) {
            int64_t at = 4;
            to.open();
            to.list(1, Compact::Struct, columns.size());
            for (size_t k = 0; k < columns.size(); k++)
                at = chunk(to, columns[k], columns_[k], rows, at);
            to.number(2, Compact::I64, at - 4);
            to.number(3, Compact::I64, int64_t(rows));
            to.close();
        }
        to.string(6, created_by);
        to.close();
    }

    // Describes the chunk that starts at byte `at`; returns where the next one does.
    static int64_t chunk(Compact &to, const Given &given, const EncodedColumn &column, size_t rows,
                         int64_t at) {
        const int64_t dictionary = int64_t(column.dictionary.size());
        const int64_t size = dictionary + int64_t(column.pages.size());
        to.open();
        to.number(2, Compact::I64, 0);  // no metadata outside the footer
        to.open(3);
        to.number(1, Compact::I32, std::get<1>(given));
        to.list(2, Compact::I32, dictionary ? 2 : 1);
        to.number(int64_t(Encoding::Plain));
        if (dictionary) to.number(int64_t(Encoding::RleDictionary));
        to.list(3, Compact::Binary, 1);
        to.string(std::get<0>(given));
        to.number(4, Compact::I32, 0);  // no codec
        to.number(5, Compact::I64, int64_t(rows));
        to.number(6, Compact::I64, size);  // uncompressed
        to.number(7, Compact::I64, size);  // compressed
        to.number(9, Compact::I64, at + dictionary);
        if (dictionary) to.number(11, Compact::I64, at);
        to.close();
        to.close();
        return at + size;
    }

    std::vector<EncodedColumn> columns_;
    std::vector<Scratch> scratch_;
    std::string tail_;
};

}  // namespace

void bind_etl_parquet_write(nb::module_ &m) {
    nb::class_<ParquetFile>(m, "EtlParquetFile")
        .def(nb::init<>())
        .def("encode", &ParquetFile::encode)
        .def("pieces", [](nb::handle_t<ParquetFile> self) { return ParquetFile::pieces(self); });
}
