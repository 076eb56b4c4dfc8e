// A vocabulary in order of first appearance: a direct table for small keys, else a hash table.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace temper_etl {

class Vocabulary {
public:
    // bound > 0: keys are in [0, bound) and address the table directly.
    Vocabulary(int64_t bound, int64_t max_keys) : max_keys_(max_keys) {
        if (bound > 0) direct_.assign(size_t(bound), 0);
        else slots_.assign(1024, Slot{0, 0});
    }

    // Assigns the next identifiers to unseen keys and writes identifiers.
    template <typename In> void grow(const In *in, int32_t *out, size_t n, int32_t base) {
        each(in, n, [&](size_t k, int32_t id) { out[k] = id + base; });
    }

    template <typename In> void count(const In *in, size_t n) {
        each(in, n, [&](size_t, int32_t id) { counts[size_t(id)]++; });
    }

    // Looks up without changing; returns how many were out of vocabulary.
    template <typename In>
    int64_t map(const In *in, int32_t *out, size_t n, int32_t base, int32_t oov) const {
        int64_t unseen = 0;
        const size_t bound = direct_.size();
        for (size_t k = 0; k < n; k++) {
            uint32_t stored;
            if (bound) {
                prefetch(in, k, n);
                size_t key = size_t(in[k]);
                stored = key < bound ? direct_[key] : 0;
            } else {
                stored = find(int64_t(in[k]));
            }
            unseen += stored == 0;
            out[k] = stored ? int32_t(stored - 1) + base : oov;
        }
        return unseen;
    }

    void add(const int64_t *in, size_t n) {
        each(in, n, [](size_t, int32_t) {});
    }

    std::vector<int64_t> keys;
    std::vector<uint32_t> counts;
    bool full = false;

private:
    struct Slot {
        int64_t key;
        uint32_t stored;  // identifier + 1; 0 is free
    };

    // An address beyond the table does no harm here: nothing is read.
    template <typename In> void prefetch(const In *in, size_t k, size_t n) const {
        __builtin_prefetch(direct_.data() + size_t(in[std::min(k + 24, n - 1)]), 1);
    }

    template <typename In, typename Use> void each(const In *in, size_t n, Use use) {
        if (direct_.empty()) {
            for (size_t k = 0; k < n; k++) {
                uint32_t stored = insert(int64_t(in[k]));
                if (!stored) return;
                use(k, int32_t(stored - 1));
            }
            return;
        }
        uint32_t *cells = direct_.data();
        for (size_t k = 0; k < n; k++) {
            prefetch(in, k, n);
            uint32_t &cell = cells[size_t(in[k])];
            if (__builtin_expect(!cell, 0) && !(cell = append(int64_t(in[k])))) return;
            use(k, int32_t(cell - 1));
        }
    }

    uint32_t append(int64_t key) {
        if (int64_t(keys.size()) >= max_keys_) {
            full = true;
            return 0;
        }
        keys.push_back(key);
        counts.push_back(0);
        return uint32_t(keys.size());
    }

    static size_t mix(int64_t key) {
        uint64_t h = uint64_t(key) * 0x9e3779b97f4a7c15ull;
        return size_t(h ^ (h >> 29));
    }

    uint32_t find(int64_t key) const {
        size_t mask = slots_.size() - 1;
        for (size_t at = mix(key) & mask;; at = (at + 1) & mask) {
            if (!slots_[at].stored) return 0;
            if (slots_[at].key == key) return slots_[at].stored;
        }
    }

    uint32_t insert(int64_t key) {
        size_t mask = slots_.size() - 1;
        for (size_t at = mix(key) & mask;; at = (at + 1) & mask) {
            if (slots_[at].stored && slots_[at].key == key) return slots_[at].stored;
            if (slots_[at].stored) continue;
            uint32_t stored = append(key);
            if (!stored) return 0;
            slots_[at] = Slot{key, stored};
            if (keys.size() * 2 > slots_.size()) rehash();
            return stored;
        }
    }

    void rehash() {
        std::vector<Slot> old(slots_.size() * 2, Slot{0, 0});
        old.swap(slots_);
        size_t mask = slots_.size() - 1;
        for (const Slot &slot : old) {
            if (!slot.stored) continue;
            size_t at = mix(slot.key) & mask;
            while (slots_[at].stored) at = (at + 1) & mask;
            slots_[at] = slot;
        }
    }

    int64_t max_keys_;
    std::vector<uint32_t> direct_;
    std::vector<Slot> slots_;
};

}  // namespace temper_etl
