// A pool of threads for fork-join loops of a few microseconds. Nothing is pinned.
//
// The calling thread works too, so a pool of n has n - 1 threads of its own. Workers spin for a short while
// after a loop, since the next one of a decode step comes within microseconds, and then sleep. A loop waits
// for the workers that have joined it, never for one that hasn't: where other processes hold the cores, the
// caller does the work of a worker that doesn't get to run.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace kv8 {

// A reference to a loop's body, any callable (task, worker): nothing is copied or allocated.
class LoopBody {
 public:
  template <class Body>
  requires(!std::is_same_v<std::remove_cvref_t<Body>, LoopBody>)
      LoopBody(const Body& body)  // NOLINT(google-explicit-constructor): made where a lambda is passed
      : body_(&body), call_([](const void* object, int64_t task, int worker) {
          (*static_cast<const Body*>(object))(task, worker);
        }) {}

  void operator()(int64_t task, int worker) const { call_(body_, task, worker); }

 private:
  const void* body_;
  void (*call_)(const void* body, int64_t task, int worker);
};

class ThreadPool {
 public:
  // threads <= 0: as many as the process may use (its affinity mask and cgroup quota).
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(task, worker) once for every task in [0, tasks), worker in [0, threads()), and returns when
  // all are done. Tasks are handed out one by one, in order; no two calls at the same time have the same
  // worker. Not re-entrant: body must not call parallel_for of this pool. body must not throw. One caller at
  // a time.
  void parallel_for(int64_t tasks, LoopBody body);

 private:
  struct State;
  void worker_loop(int worker);
  void run_tasks(LoopBody body, int64_t tasks, int worker);

  int threads_ = 1;
  std::unique_ptr<State> state_;
};

// How many threads this process may run at once: the affinity mask, limited by a cgroup CPU quota.
int available_threads();
// `asked` threads, 0 for all, but no more than can run at once: more would only wait for each other.
int usable_threads(int asked);

}  // namespace kv8
