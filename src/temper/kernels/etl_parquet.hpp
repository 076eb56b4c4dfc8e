// A column chunk of Parquet, decoded page by page straight into its chain's results.
#pragma once
#include <functional>
#include <memory>
#include <unordered_map>

#include "etl_arrays.hpp"
#include "etl_parquet_page.hpp"
#include "etl_text.hpp"

namespace temper_etl::parquet {

// Decompresses to exactly so many bytes, or throws.
using Memory = std::shared_ptr<const uint8_t>;
using Codec = std::function<Memory(const uint8_t *in, size_t size, size_t room)>;

class Chunk {
public:
    // The chunk's pages lie in [begin, file.size); the codec is empty if they are not compressed.
    Chunk(const Column &column, Source source, bool nullable, Text file, int64_t begin,
          int64_t rows, Codec codec)
        : col_(column), source_(source), nullable_(nullable), file_(file), at_(begin),
          rows_left_(rows), codec_(std::move(codec)) {}

    // Decodes the next rows; malformed ones have their row in `line`, the first few their text.
    void read(int64_t rows, char *out, std::vector<Bad> &bad) {
        for (int64_t done = 0; done < rows;) {
            while (!page_left_) next_page();
            int64_t n = std::min({rows - done, page_left_, kStep});
            step(size_t(n), done, out + size_t(done) * col_.width(), bad);
            done += n, page_left_ -= n;
        }
    }

private:
    static constexpr int64_t kStep = 1024;  // what is on its way stays in the L1 cache
    static constexpr int64_t kReadAhead = 256 << 10;
    static constexpr int64_t kLongestHeader = 16 << 20;

    void step(size_t n, int64_t row, char *out, std::vector<Bad> &bad) {
        uint32_t levels[kStep];
        alignas(8) char packed[8 * kStep];
        size_t present = n;
        if (nullable_) {
            levels_.get(levels, n);
            uint32_t any = 0;
            present = 0;
            for (size_t k = 0; k < n; k++) present += levels[k], any |= levels[k];
            if (any > 1) fail("a definition level is too large");
        }
        const size_t first = bad.size();
        char *to = present == n ? out : packed;
        if (encoded_) look_up(present, to, bad);
        else plain(values_, present, to, bad, Reader::kBadKept);
        if (first < bad.size()) {
            uint32_t where[kStep];
            for (size_t k = 0, j = 0; k < n; k++)
                if (!nullable_ || levels[k]) where[j++] = uint32_t(k);
            for (size_t k = first; k < bad.size(); k++) bad[k].line = row + where[bad[k].line];
        }
        if (present == n) return;
        if (col_.width() == 8) expand<uint64_t>(packed, present, levels, n, out);
        else expand<uint32_t>(packed, present, levels, n, out);
    }

    template <typename T>
    void expand(char *packed, size_t present, const uint32_t *levels, size_t n, char *out) const {
        T *in = reinterpret_cast<T *>(packed), *to = reinterpret_cast<T *>(out);
        const T missing = T(col_.missing);
        in[present] = missing;  // read, but never used
        for (size_t k = 0, j = 0; k < n; k++) {
            const T mask = T(0) - T(levels[k]);  // no branch: where nulls are is not predictable
            to[k] = (in[j] & mask) | (missing & ~mask);
            j += levels[k];
        }
    }

    // PLAIN values through the chain; `line` of malformed ones is their number.
    void plain(Bytes &in, size_t n, char *to, std::vector<Bad> &bad, size_t texts) const {
        if (source_ >= Source::Text32) {
            for (size_t k = 0; k < n; k++) {
                const uint32_t size = in.u32();
                const char *text = reinterpret_cast<const char *>(in.take(size));
                uint64_t bits;
                Reason reason = word(col_, text, size, bits);
                if (reason != Good)
                    note(bad, k, reason, texts, [&] { return std::string(text, size); });
                put(col_, to, int64_t(k), bits);
            }
            return;
        }
        alignas(8) char aligned[8 * kStep];
        Array a{0, source_, aligned, nullptr, nullptr, 0, int64_t(n), to};
        const uint8_t *from = in.take(n * value_bytes());
        switch (source_) {
            case Source::I8: narrow<int8_t>(from, n, aligned); break;
            case Source::I16: narrow<int16_t>(from, n, aligned); break;
            case Source::U8: narrow<uint8_t>(from, n, aligned); break;
            case Source::U16: narrow<uint16_t>(from, n, aligned); break;
            default: std::memcpy(aligned, from, n * value_bytes());
        }
        BadRows found;
        apply_chain(col_, a, found);
        for (auto [k, reason] : found)
            note(bad, size_t(k), reason, texts,
                 [&, at = from + size_t(k) * value_bytes()] { return shown(at); });
    }

    // Narrow integers are stored as 32 bits.
    template <typename T> static void narrow(const uint8_t *from, size_t n, char *to) {
        for (size_t k = 0; k < n; k++) std::memcpy(to + sizeof(T) * k, from + 4 * k, sizeof(T));
    }

    size_t value_bytes() const {
        return source_ == Source::I64 || source_ == Source::F64 ? 8 : 4;
    }

    // Only these can be malformed: wide integers, and what is no finite float32.
    std::string shown(const uint8_t *from) const {
        if (source_ == Source::F32 || source_ == Source::F64) {
            double d = 0;
            float f = 0;
            if (source_ == Source::F64) std::memcpy(&d, from, 8);
            else std::memcpy(&f, from, 4), d = double(f);
            if (std::isnan(d)) return "nan";
            char text[32];
            return std::string(text, std::to_chars(text, text + sizeof text, d).ptr);
        }
        int64_t v = 0;
        std::memcpy(&v, from, value_bytes());
        return std::to_string(source_ == Source::I32 ? int32_t(v) : v);
    }

    template <typename Get>
    static void note(std::vector<Bad> &bad, size_t k, int reason, size_t texts, Get text) {
        bad.push_back({int64_t(k), 0, reason, bad.size() < texts ? text() : ""});
    }

    // Values by their place in the dictionary, whose words went through the chain before.
    void look_up(size_t n, char *to, std::vector<Bad> &bad) {
        uint32_t index[kStep];
        indices_.get(index, n);
        uint32_t most = 0;
        for (size_t k = 0; k < n; k++) most = std::max(most, index[k]);
        if (n && most >= words_) fail("an index is beyond its dictionary");
        if (col_.width() == 8) gather<uint64_t>(index, n, to);
        else gather<uint32_t>(index, n, to);
        if (bad_words_.empty()) return;
        for (size_t k = 0; k < n; k++) {
            auto found = bad_words_.find(index[k]);
            if (found == bad_words_.end()) continue;
            note(bad, k, found->second.reason, Reader::kBadKept, [&] { return found->second.text; });
        }
    }

    template <typename T> void gather(const uint32_t *index, size_t n, char *to) const {
        const T *table = reinterpret_cast<const T *>(table_.data());
        for (size_t k = 0; k < n; k++) reinterpret_cast<T *>(to)[k] = table[index[k]];
    }

    // The next data page; dictionary pages before it are taken in.
    void next_page() {
        for (;;) {
            PageHeader h;
            size_t header = 0;
            for (int64_t want = 4 << 10;; want *= 8) {
                Bytes in = window(want);
                const uint8_t *start = in.p;
                try {
                    h = read_header(in);
                    header = size_t(in.p - start);
                    break;
                } catch (const Short &) {
                    if (want >= std::min(kLongestHeader, file_.size - at_)) throw;
                }
            }
            Bytes in = window(int64_t(header) + h.compressed);
            in.take(header);
            in = part(in, size_t(h.compressed));
            at_ += int64_t(header) + h.compressed;
            if (h.type == kDictionary) {
                dictionary(h, unpacked(h, in));
                continue;
            }
            if (h.type == kDataV2) {
                levels_ = Runs(part(in, size_t(h.level_bytes)), 1);
                if (h.uncompressed < h.level_bytes) fail("its header has a wrong size");
                h.uncompressed -= h.level_bytes;
                values_ = h.is_compressed && h.uncompressed ? unpacked(h, in) : in;
            } else {
                values_ = unpacked(h, in);
                if (nullable_) {
                    if (h.level_encoding != kRle) fail("its levels are not run-length encoded");
                    uint32_t size = values_.u32();
                    levels_ = Runs(part(values_, size), 1);
                }
            }
            encoded_ = h.encoding != kPlain;
            if (encoded_) {
                if (!has_words_ || (h.encoding != kPlainDictionary && h.encoding != kRleDictionary))
                    fail("its encoding is not known");
                const unsigned width = values_.left() ? *values_.take(1) : 0;
                indices_ = Runs(values_, width);
            }
            page_left_ = h.values;
            rows_left_ -= h.values;
            if (rows_left_ < 0) fail("its pages have too many rows");
            return;
        }
    }

    void dictionary(const PageHeader &h, Bytes in) {
        if (has_words_ || (h.encoding != kPlain && h.encoding != kPlainDictionary))
            fail("its dictionary is not known");
        const size_t count = size_t(h.values);
        if (count > in.left() / value_bytes()) throw Short();  // a text's length has 4 bytes, too
        table_.resize(count * col_.width());
        for (size_t from = 0; from < count; from += kStep) {
            std::vector<Bad> bad;
            plain(in, std::min(count - from, size_t(kStep)), table_.data() + from * col_.width(), bad,
                  kStep);
            for (Bad &word : bad) bad_words_[uint32_t(from + size_t(word.line))] = std::move(word);
        }
        words_ = count, has_words_ = true;
    }

    static Bytes part(Bytes &in, size_t size) {
        const uint8_t *from = in.take(size);
        return {from, from + size};
    }

    Bytes unpacked(const PageHeader &h, Bytes in) {
        if (!codec_) return in;
        page_ = codec_(in.p, in.left(), size_t(h.uncompressed));
        return {page_.get(), page_.get() + h.uncompressed};
    }

    // At least `want` bytes of the file from where the chunk is, or all that it has left.
    Bytes window(int64_t want) {
        want = std::min(want, file_.size - at_);
        if (want <= 0) throw Short();
        if (at_ < raw_from_ || at_ + want > raw_from_ + raw_size_) {
            int64_t size = std::min(std::max(want, kReadAhead), file_.size - at_);
            raw_.resize(std::max(raw_.size(), size_t(size)));
            raw_from_ = at_;
            raw_size_ = file_.read(at_, size, raw_.data());
            if (raw_size_ < want) throw Short();
        }
        const uint8_t *from = reinterpret_cast<const uint8_t *>(raw_.data()) + (at_ - raw_from_);
        return {from, from + (raw_size_ - (at_ - raw_from_))};
    }

    const Column &col_;
    const Source source_;
    const bool nullable_;
    const Text file_;
    int64_t at_;         // where the next page begins
    int64_t rows_left_;  // behind the current page
    const Codec codec_;
    std::vector<char> raw_;  // bytes of the file
    int64_t raw_from_ = 0, raw_size_ = 0;
    Memory page_;  // decompressed
    int64_t page_left_ = 0;
    Runs levels_, indices_;
    Bytes values_;
    bool encoded_ = false;
    std::vector<char> table_;  // the chain's results for the dictionary's words
    size_t words_ = 0;
    bool has_words_ = false;
    std::unordered_map<uint32_t, Bad> bad_words_;
};

}  // namespace temper_etl::parquet
