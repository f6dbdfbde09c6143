#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

#include "core/check.h"

namespace kv8 {

namespace {

// Longer than what lies between two loops of a decode step (sampling a token is the longest), shorter than
// anyone would notice.
constexpr auto kSpinTime = std::chrono::microseconds(200);

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or until kSpinTime is over.
template <class Done>
bool spin_until(Done done) {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  for (int round = 1;; ++round) {
    if (done()) return true;
    cpu_relax();
    if (round % 64 != 0) continue;  // a look at the clock costs more than a round
    const auto now = std::chrono::steady_clock::now();
    if (!deadline) deadline = now + kSpinTime;
    if (now > *deadline) return false;
  }
}

// The gate of the current loop, in one word so that a worker joins a loop and is counted in one step: the
// loop's number, whether it may still be joined, and the workers inside.
constexpr uint64_t kInside = 0xFFFF;
constexpr uint64_t kOpen = 0x10000;
constexpr int kLoopShift = 17;

bool may_join(uint64_t gate, uint64_t last_loop) {
  return (gate & kOpen) != 0 && gate >> kLoopShift != last_loop;
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;

  // Of the current loop: written before its gate opens, read by workers inside.
  std::optional<LoopBody> body;
  int64_t tasks = 0;
  uint64_t loop = 0;  // the caller's count

  alignas(64) std::atomic<uint64_t> gate{0};
  alignas(64) std::atomic<int64_t> next_task{0};
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> in_loop{false};
};

ThreadPool::ThreadPool(int threads)
    : threads_(threads > 0 ? threads : available_threads()), state_(std::make_unique<State>()) {
  KV8_CHECK(static_cast<uint64_t>(threads_) <= kInside, "{} threads", threads_);
  for (int worker = 1; worker < threads_; ++worker) {
    state_->workers.emplace_back([this, worker] { worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run_tasks(LoopBody body, int64_t tasks, int worker) {
  std::atomic<int64_t>& next_task = state_->next_task;
  for (;;) {
    const int64_t task = next_task.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks) return;
    body(task, worker);
  }
}

void ThreadPool::worker_loop(int worker) {
  State& state = *state_;
  uint64_t last_loop = 0;
  const auto called = [&] {
    return state.stop.load(std::memory_order_relaxed) ||
           may_join(state.gate.load(std::memory_order_seq_cst), last_loop);
  };
  for (;;) {
    if (!spin_until(called)) {
      std::unique_lock lock(state.mutex);
      state.sleepers.fetch_add(1);
      state.wake.wait(lock, called);
      state.sleepers.fetch_sub(1);
    }
    if (state.stop) return;
    uint64_t gate = state.gate.load(std::memory_order_relaxed);
    if (!may_join(gate, last_loop)) continue;  // closed meanwhile
    if (!state.gate.compare_exchange_strong(gate, gate + 1, std::memory_order_acquire)) continue;
    last_loop = gate >> kLoopShift;
    run_tasks(*state.body, state.tasks, worker);
    state.gate.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::parallel_for(int64_t tasks, LoopBody body) {
  if (tasks <= 0) return;
  State& state = *state_;
  KV8_CHECK(!state.in_loop.exchange(true), "parallel_for is not re-entrant");
  if (threads_ == 1 || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    state.in_loop = false;
    return;
  }
  state.body = body;
  state.tasks = tasks;
  state.next_task.store(0, std::memory_order_relaxed);
  // Sequentially consistent, as the workers' look at the gate after they have counted themselves as sleepers:
  // one of the two sees the other.
  state.gate.store(++state.loop << kLoopShift | kOpen, std::memory_order_seq_cst);
  if (state.sleepers.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard lock(state.mutex); }  // a worker between its look and its wait holds the mutex
    state.wake.notify_all();
  }
  run_tasks(body, tasks, 0);
  state.gate.fetch_and(~kOpen, std::memory_order_relaxed);
  const auto all_left = [&] { return (state.gate.load(std::memory_order_acquire) & kInside) == 0; };
  while (!spin_until(all_left)) std::this_thread::yield();
  state.in_loop = false;
}

int usable_threads(int asked) {
  const int available = available_threads();
  return asked > 0 ? std::min(asked, available) : available;
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
