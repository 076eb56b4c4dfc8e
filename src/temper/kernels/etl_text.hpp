// Delimited text to finished columns in one pass: blocks are parsed on all threads, in order.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "etl_text_fields.hpp"

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
    static constexpr size_t kRowsAtOnce = 64;  // of the usual text, they stay in the first cache
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
        std::vector<uint32_t> starts;          // of some rows' fields, and of what follows them
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
        std::atomic<int64_t> taken{0};
        std::mutex lock;
        std::condition_variable passed;
        int64_t turn = 0;
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
                if (p >= edge || from + got >= text.size || more == 0) {
                    edge = std::min(edge, all);
                    break;
                }
                if (std::memchr(edge - 1, '\n', size_t(all - (edge - 1)))) break;
                if (want > kLongestRow) { fault = "long"; break; }
                want *= 2;
            }
            if (fault.empty() && p < edge) {
                const char *all = w.text.data() + got;
                while (p < edge) {
                    const size_t found = find_rows(p, edge, all, w);
                    w.reserve(size_t(rows) + kRowsAtOnce, columns_);
                    if (found && parse_columns(found, w, rows)) {
                        p = w.text.data() + w.starts[found * columns_.size()];
                        rows += int64_t(found);
                        lines += int64_t(found);
                        continue;
                    }
                    for (size_t k = 0; k < std::max<size_t>(found, 1); k++, lines++)
                        p = row(p, all, w, rows, lines);
                }
                last = from + (p - w.text.data());
            }
        }
        // Sleeping, not spinning: the block before may belong to a thread without a core.
        std::unique_lock<std::mutex> held(s.lock);
        s.passed.wait(held, [&] { return s.turn == index; });
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
        s.turn = index + 1;
        held.unlock();
        s.passed.notify_all();
        if (!keep) return;
        for (size_t c = 0; c < columns_.size(); c++)
            if (columns_[c].kind != Kind::Skip)
                std::memcpy(outs[c] + size_t(at) * columns_[c].width(), w.local[c].data(),
                            size_t(rows) * columns_[c].width());
    }

    // A field in quotes may hold the delimiter; a quote in it is doubled. Rows end at newlines.
    const char *field_end(const char *p, const char *all) const {
        const char *first = p;
        while (first < all && *first == ' ') first++;
        if (first < all && *first == '"' && delimiter_ != '"') {
            for (const char *at = first + 1; at < all && *at != '\n'; at++) {
                if (*at != '"') continue;
                if (at + 1 < all && at[1] == '"') at++;
                else { p = at + 1; break; }
            }
        }
        while (p < all && *p != delimiter_ && *p != '\n') p++;
        return p;
    }

    void note(Worker &w, int64_t line, int column, Reason reason, const char *from,
              const char *to) const {
        w.reasons[reason]++;
        if (w.bad.size() < kBadKept)
            w.bad.push_back({line, column, reason, std::string(from, std::min(to, from + 60))});
    }

    // Finds up to kRowsAtOnce rows that start in [p, edge) and have the columns they should;
    // returns how many there are up to one that has not. w.starts is where their fields start.
    size_t find_rows(const char *p, const char *edge, const char *all, Worker &w) const {
        const size_t count = columns_.size(), most = kRowsAtOnce * count;
        w.starts.resize(most + 1 + 64);
        const char *text = w.text.data();
        uint32_t *starts = w.starts.data();
        starts[0] = uint32_t(p - text);
        size_t found = 0, rows = 0;
        for (; p < all && found < most; p += 64) {
            const uint32_t behind = uint32_t(p - text) + 1;
            uint64_t newlines = matches(p, '\n');
            for (uint64_t any = newlines | matches(p, delimiter_); any; any &= any - 1)
                starts[++found] = behind + uint32_t(__builtin_ctzll(any));
            for (; newlines; newlines &= newlines - 1, rows++) {
                const size_t next = (rows + 1) * count;
                if (next > std::min(found, most) || text + starts[rows * count] >= edge ||
                    starts[next] != behind + uint32_t(__builtin_ctzll(newlines)))
                    return rows;
            }
        }
        return rows;
    }

    // The rows that find_rows found, column by column; false when a field is malformed.
    bool parse_columns(size_t found, Worker &w, int64_t rows) const {
        for (size_t c = 0; c < columns_.size(); c++) {
            const Column &col = columns_[c];
            if (col.kind == Kind::Skip) continue;
            const Fields fields{w.text.data(), w.starts.data() + c, columns_.size(), found};
            char *out = w.local[c].data() + size_t(rows) * col.width();
            const bool good =
                col.width() == 4
                    ? parse_column(col, fields, col.table32, reinterpret_cast<uint32_t *>(out))
                    : parse_column(col, fields, col.table64, reinterpret_cast<uint64_t *>(out));
            if (!good) return false;
        }
        return true;
    }

    // Parses one row into w.local at `rows`; returns the start of the next row.
    const char *row(const char *p, const char *all, Worker &w, int64_t &rows, int64_t line) const {
        const char *start = p;
        const size_t count = columns_.size();
        if (count > 1) {  // an empty line is no row; with one column it is a missing value
            const char *stop = *p == '\r' && p + 1 < all ? p + 1 : p;
            if (*stop == '\n') return stop + 1;
        }
        bool good = true;
        for (size_t c = 0; c < count; c++) {
            const Column &col = columns_[c];
            const char *field = p;
            uint64_t bits = 0;
            p = field_end(p, all);
            if (col.kind != Kind::Skip) {
                Reason reason = read_field(col, field, p, bits);
                if (reason != Good) {
                    if (good) note(w, line, int(c), reason, field, p);
                    good = false;
                    bits = col.missing;
                }
                std::memcpy(w.local[c].data() + size_t(rows) * col.width(), &bits, col.width());
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
