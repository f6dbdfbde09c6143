#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

#include "core/check.h"

namespace kv8 {

namespace {

// About 50 us on a current core: longer than the serial parts of a decode step, shorter than anyone would
// notice.
constexpr int kSpinIterations = 20000;

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;

  const std::function<void(int64_t, int)>* body = nullptr;
  int64_t tasks = 0;
  alignas(64) std::atomic<uint64_t> generation{0};  // counts loops; a change tells the workers to start
  alignas(64) std::atomic<int64_t> next_task{0};
  alignas(64) std::atomic<int> busy_workers{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
};

ThreadPool::ThreadPool(int threads)
    : threads_(threads > 0 ? threads : available_threads()), state_(std::make_unique<State>()) {
  for (int worker = 1; worker < threads_; ++worker) {
    state_->workers.emplace_back([this, worker] { worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->generation.fetch_add(1);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run_tasks(int worker) {
  State& state = *state_;
  const int64_t tasks = state.tasks;
  const auto& body = *state.body;
  for (;;) {
    const int64_t task = state.next_task.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks) return;
    body(task, worker);
  }
}

void ThreadPool::worker_loop(int worker) {
  State& state = *state_;
  uint64_t seen = 0;
  for (;;) {
    uint64_t generation = state.generation.load(std::memory_order_acquire);
    for (int spin = 0; generation == seen && spin < kSpinIterations; ++spin) {
      cpu_relax();
      generation = state.generation.load(std::memory_order_acquire);
    }
    if (generation == seen) {
      std::unique_lock lock(state.mutex);
      state.sleepers.fetch_add(1);
      state.wake.wait(lock, [&] { return state.generation.load(std::memory_order_acquire) != seen; });
      state.sleepers.fetch_sub(1);
      generation = state.generation.load(std::memory_order_acquire);
    }
    seen = generation;
    if (state.stop) return;
    run_tasks(worker);
    state.busy_workers.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void ThreadPool::parallel_for(int64_t tasks, const std::function<void(int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  State& state = *state_;
  KV8_CHECK(state.busy_workers.load() == 0, "parallel_for is not re-entrant");
  state.body = &body;
  state.tasks = tasks;
  state.next_task.store(0, std::memory_order_relaxed);
  state.busy_workers.store(threads_ - 1, std::memory_order_relaxed);
  state.generation.fetch_add(1);  // sequentially consistent: pairs with `sleepers` below
  if (state.sleepers.load() > 0) {
    { const std::lock_guard lock(state.mutex); }  // a worker between its test and its wait holds the mutex
    state.wake.notify_all();
  }
  run_tasks(0);
  // All workers must have left run_tasks before `body` may go.
  for (int spin = 0; state.busy_workers.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpinIterations) {
      cpu_relax();
    } else {
      std::this_thread::yield();
    }
  }
}

int available_threads() {
  int count = 1;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) count = std::max(1, CPU_COUNT(&mask));
  // cgroup v2: "max 100000" or "200000 100000" (quota and period in microseconds).
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  long period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    const long limit = std::strtol(quota.c_str(), nullptr, 10);
    if (limit > 0)
      count = std::min<int>(count, static_cast<int>(std::max(1L, (limit + period - 1) / period)));
  }
  return count;
}

}  // namespace kv8
