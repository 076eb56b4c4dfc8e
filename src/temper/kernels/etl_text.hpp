// Delimited text to finished columns in one pass: blocks are parsed on all threads, in order.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "etl_chain.hpp"

namespace temper_etl {

enum class Policy : int { Error = 0, Skip = 1, Fill = 2 };

struct Bad {
    int64_t line;  // counted from the batch's first line
    int column, reason;
    std::string text;
};

struct Batch {
    int64_t rows = 0, lines = 0, next = 0;
    int64_t reasons[6] = {0, 0, 0, 0, 0, 0};
    std::vector<Bad> bad;  // the first few, in file order
    std::string fault;
};

// Text of a file (read at offsets, so that threads do not share a position) or of memory.
struct Text {
    int fd = -1;
    const char *base = nullptr;
    int64_t size = 0;

    int64_t read(int64_t at, int64_t count, char *to) const {
        count = std::min(count, size - at);
        if (count <= 0) return 0;
        if (base) {
            std::memcpy(to, base + at, size_t(count));
            return count;
        }
        int64_t done = 0;
        while (done < count) {
            ssize_t got = ::pread(fd, to + done, size_t(count - done), at + done);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return -1;
            if (got == 0) break;
            done += got;
        }
        return done;
    }
};

class Reader {
public:
    // A block and its parsed rows stay in one core's L2 cache.
    static constexpr int64_t kBlock = 256 << 10;
    static constexpr int64_t kLongestRow = 16 << 20;
    static constexpr size_t kBadKept = 20;

    Reader(const std::vector<Column> &columns, char delimiter, Policy policy)
        : columns_(columns), delimiter_(delimiter), policy_(policy) {}

    // Parses the rows that start in [begin, end), begin being the start of a row, and writes them
    // to outs[column] from row `at` on; stops early when `capacity` rows are reached.
    Batch run(const Text &text, int64_t begin, int64_t end, const std::vector<char *> &outs,
              int64_t at, int64_t capacity, int threads) const {
        int64_t blocks = (end - begin + kBlock - 1) / kBlock;
        Shared shared(at);
        shared.batch.next = begin;
        auto work = [&] {
            Worker worker(columns_);
            for (int64_t b; (b = shared.taken++) < blocks;)
                block(text, begin, std::min(end, begin + (b + 1) * kBlock), b, outs, capacity,
                      worker, shared);
        };
        std::vector<std::thread> pool;
        for (int t = 1; t < threads && t < blocks; t++) pool.emplace_back(work);
        work();
        for (auto &thread : pool) thread.join();
        shared.batch.rows = shared.row - at;
        return shared.batch;
    }

private:
    struct Worker {
        explicit Worker(const std::vector<Column> &columns) : local(columns.size()) {}
        std::vector<char> text;
        std::vector<std::vector<char>> local;  // this block's output columns
        std::vector<Bad> bad;
        int64_t reasons[6];
        size_t room = 0;

        void reserve(size_t rows, const std::vector<Column> &columns) {
            if (rows <= room) return;
            room = std::max(rows, room * 2);
            for (size_t c = 0; c < columns.size(); c++)
                if (columns[c].kind != Kind::Skip) local[c].resize(room * columns[c].width());
        }
    };

    struct Shared {
        explicit Shared(int64_t at) : row(at) {}
        std::atomic<int64_t> taken{0}, turn{0};
        std::atomic<bool> stop{false};
        int64_t row, line = 0;  // owned by the block whose turn it is
        Batch batch;
    };

    void block(const Text &text, int64_t begin, int64_t stop, int64_t index,
               const std::vector<char *> &outs, int64_t capacity, Worker &w, Shared &s) const {
        int64_t start = begin + index * kBlock;
        int64_t from = index ? start - 1 : start;  // the newline before tells where a row starts
        std::string fault;
        int64_t rows = 0, lines = 0, last = start;
        w.bad.clear();
        std::fill(std::begin(w.reasons), std::end(w.reasons), 0);
        if (!s.stop) {
            int64_t want = stop - from + 4096, got = 0;
            const char *p = nullptr, *edge = nullptr;
            for (;;) {  // until the last row that starts here is whole
                w.text.resize(size_t(want) + 64);
                int64_t more = text.read(from + got, want - got, w.text.data() + got);
                if (more < 0) { fault = "read"; break; }
                got += more;
                std::memset(w.text.data() + got, 0, 64);
                p = w.text.data();
                const char *all = p + got;
                if (index) {
                    const void *newline = std::memchr(p, '\n', size_t(got));
                    p = newline ? static_cast<const char *>(newline) + 1 : all;
                }
                edge = w.text.data() + (stop - from);
                if (p >= edge || from + got >= text.size || more == 0) { edge = std::min(edge, all); break; }
                if (std::memchr(edge - 1, '\n', size_t(all - (edge - 1)))) break;
                if (want > kLongestRow) { fault = "long"; break; }
                want *= 2;
            }
            if (fault.empty() && p < edge) {
                const char *all = w.text.data() + got;
                while (p < edge) {
                    w.reserve(size_t(rows) + 1, columns_);
                    p = row(p, all, w, rows, lines);
                    lines++;
                }
                last = from + (p - w.text.data());
            }
        }
        while (s.turn.load(std::memory_order_acquire) != index) std::this_thread::yield();
        int64_t at = s.row;
        bool keep = !s.stop;
        if (keep && !fault.empty()) {
            s.batch.fault = fault;
            s.stop = true, keep = false;
        } else if (keep && at + rows > capacity) {
            s.stop = true, keep = false;  // this block opens the next batch
        }
        if (keep) {
            for (Bad &bad : w.bad) {
                if (s.batch.bad.size() >= kBadKept) break;
                bad.line += s.line;
                s.batch.bad.push_back(bad);
            }
            for (int k = 0; k < 6; k++) s.batch.reasons[k] += w.reasons[k];
            s.row += rows;
            s.line += lines;
            s.batch.lines += lines;
            if (lines) s.batch.next = last;
        }
        s.turn.store(index + 1, std::memory_order_release);
        if (!keep) return;
        for (size_t c = 0; c < columns_.size(); c++)
            if (columns_[c].kind != Kind::Skip)
                std::memcpy(outs[c] + size_t(at) * columns_[c].width(), w.local[c].data(),
                            size_t(rows) * columns_[c].width());
    }

    const char *field_end(const char *p, const char *all) const {
        while (p < all && *p != delimiter_ && *p != '\n') p++;
        return p;
    }

    void note(Worker &w, int64_t line, int column, Reason reason, const char *from,
              const char *to) const {
        w.reasons[reason]++;
        if (w.bad.size() < kBadKept)
            w.bad.push_back({line, column, reason, std::string(from, std::min(to, from + 60))});
    }

    // Parses one row into w.local at `rows`; returns the start of the next row.
    const char *row(const char *p, const char *all, Worker &w, int64_t &rows, int64_t line) const {
        const char *start = p;
        const size_t count = columns_.size();
        bool good = true;
        for (size_t c = 0; c < count; c++) {
            const Column &col = columns_[c];
            const char *field = p;
            uint64_t bits = 0;
            bool done = false;
            switch (col.kind) {
                case Kind::Hex: {
                    uint64_t word;
                    uint32_t value;
                    std::memcpy(&word, p, 8);
                    if ((p[8] == delimiter_ || p[8] == '\n') && hex8(word, value) &&
                        col.fits(value)) {
                        bits = col.from_hex(value);
                        p += 8;
                        done = true;
                    }
                    break;
                }
                case Kind::Int: {
                    const bool minus = *p == '-';
                    const char *q = p + minus;
                    uint64_t v = 0;
                    unsigned digit;
                    while ((digit = unsigned(*q) - '0') < 10 && q - p < 10) v = v * 10 + digit, q++;
                    if ((*q == delimiter_ || *q == '\n') && q > p + minus) {
                        int64_t value = minus ? -int64_t(v) : int64_t(v);
                        if (col.fits(value)) {
                            bits = col.from_int(value);
                            p = q;
                            done = true;
                        }
                    }
                    break;
                }
                case Kind::Skip:
                    p = field_end(p, all);
                    done = true;
                    break;
                case Kind::Float:
                    break;
            }
            if (!done) {
                if (*p == delimiter_ || (*p == '\n' && p < all)) {
                    bits = col.missing;
                } else {
                    p = field_end(p, all);
                    Reason reason = read_field(col, field, p, bits);
                    if (reason != Good) {
                        if (good) note(w, line, int(c), reason, field, p);
                        good = false;
                        bits = col.missing;
                    }
                }
            }
            if (col.kind != Kind::Skip) {
                char *to = w.local[c].data() + size_t(rows) * col.width();
                if (col.width() == 4) {
                    uint32_t narrow = uint32_t(bits);
                    std::memcpy(to, &narrow, 4);
                } else {
                    std::memcpy(to, &bits, 8);
                }
            }
            const bool at_delimiter = p < all && *p == delimiter_;
            if ((c + 1 < count) != at_delimiter) {  // too few fields, or too many
                if (good) note(w, line, -1, BadColumns, start, field_end_of_row(p, all));
                good = false;
                for (size_t rest = c + 1; rest < count; rest++) {
                    const Column &missing = columns_[rest];
                    if (missing.kind != Kind::Skip)
                        std::memcpy(w.local[rest].data() + size_t(rows) * missing.width(),
                                    &missing.missing, missing.width());
                }
                break;
            }
            if (at_delimiter) p++;
        }
        p = field_end_of_row(p, all);
        if (good || policy_ == Policy::Fill) rows++;
        return p < all ? p + 1 : all;
    }

    static const char *field_end_of_row(const char *p, const char *all) {
        if (p >= all) return all;
        const void *newline = std::memchr(p, '\n', size_t(all - p));
        return newline ? static_cast<const char *>(newline) : all;
    }

    const std::vector<Column> &columns_;
    char delimiter_;
    Policy policy_;
};

}  // namespace temper_etl
