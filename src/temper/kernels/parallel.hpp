// Splits a range of work over OpenMP threads; small work stays on the calling thread.
#pragma once
#include <atomic>
#include <cstddef>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace temper {

// Below this many elements, waking a second thread costs more than it gains.
constexpr std::size_t kParallelElements = std::size_t{1} << 16;
// Parts a thread: threads take parts as they become free, so that a core that is busy with
// something else does not hold up the rest.
constexpr std::size_t kPartsPerThread = 8;

// Calls body(begin, end) for consecutive parts of [0, items). `elements` is the size of the whole
// work and decides whether threads are worth it.
template <class Body>
void parallel_for(std::size_t items, std::size_t elements, const Body &body) {
#ifdef _OPENMP
    const std::size_t threads = static_cast<std::size_t>(omp_get_max_threads());
    if (elements >= kParallelElements && items > 1 && threads > 1) {
        const std::size_t parts = items < threads * kPartsPerThread ? items : threads * kPartsPerThread;
        std::atomic<std::size_t> next{0};
#pragma omp parallel
        for (std::size_t part; (part = next.fetch_add(1)) < parts;)
            body(items * part / parts, items * (part + 1) / parts);
        return;
    }
#endif
    (void)elements;
    if (items > 0) body(std::size_t{0}, items);
}

}  // namespace temper
