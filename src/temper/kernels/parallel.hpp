// Splits a range of work over OpenMP threads; small work stays on the calling thread.
#pragma once
#include <cstddef>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace temper {

// Below this many elements, waking a second thread costs more than it gains.
constexpr std::size_t kParallelElements = 1 << 16;

// Calls body(begin, end) for consecutive parts of [0, items). `elements` is the size of the whole
// work and decides whether threads are worth it.
template <class Body>
void parallel_for(std::size_t items, std::size_t elements, const Body &body) {
#ifdef _OPENMP
    if (elements >= kParallelElements && items > 1 && omp_get_max_threads() > 1) {
#pragma omp parallel
        {
            const std::size_t threads = static_cast<std::size_t>(omp_get_num_threads());
            const std::size_t index = static_cast<std::size_t>(omp_get_thread_num());
            const std::size_t begin = items * index / threads;
            const std::size_t end = items * (index + 1) / threads;
            if (begin < end) body(begin, end);
        }
        return;
    }
#endif
    (void)elements;
    if (items > 0) body(std::size_t{0}, items);
}

}  // namespace temper
