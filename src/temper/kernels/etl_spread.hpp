// Independent tasks over threads; a thread that is held up leaves the rest to the others.
#pragma once
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace temper_etl {

// Runs task(0..count, thread number) on up to `threads` threads, each task once.
template <class Task> void spread(size_t count, int threads, const Task &task) {
    std::atomic<size_t> next{0};
    auto work = [&](size_t thread) {
        for (size_t k; (k = next++) < count;) task(k, thread);
    };
    std::vector<std::thread> pool;
    for (size_t t = 1; t < size_t(threads) && t < count; t++) pool.emplace_back(work, t);
    work(0);
    for (auto &thread : pool) thread.join();
}

}  // namespace temper_etl
