// A pool of threads for fork-join loops of a few microseconds. Nothing is pinned.
//
// The calling thread works too, so a pool of n has n - 1 threads of its own. Workers spin for a short while
// after a loop, since the next one of a decode step comes within microseconds, and then sleep.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace kv8 {

class ThreadPool {
 public:
  // threads <= 0: as many as the process may use (its affinity mask and cgroup quota).
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(task, worker) once for every task in [0, tasks), worker in [0, threads()), and returns when
  // all are done. Tasks are handed out one by one, in order. Not re-entrant: body must not call parallel_for
  // of this pool. body must not throw. One caller at a time.
  void parallel_for(int64_t tasks, const std::function<void(int64_t task, int worker)>& body);

 private:
  struct State;
  void worker_loop(int worker);
  void run_tasks(int worker);

  int threads_ = 1;
  std::unique_ptr<State> state_;
};

// How many threads this process may run at once: the affinity mask, limited by a cgroup CPU quota.
int available_threads();

}  // namespace kv8
