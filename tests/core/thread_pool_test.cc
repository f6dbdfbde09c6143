#include "core/thread_pool.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

namespace kv8 {
namespace {

TEST(ThreadPool, EveryTaskRunsOnce) {
  for (const int threads : {1, 2, 3, 8}) {  // 8: more than most test machines have cores
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> runs(static_cast<size_t>(tasks), 0);
      pool.parallel_for(tasks, [&](int64_t task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        ++runs[static_cast<size_t>(task)];
      });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(tasks), 1)) << threads << " threads";
    }
  }
}

// What a loop has written, the next one reads, whichever threads do either: many short loops, so that workers
// come late, come to a loop that has closed, or miss some loops altogether.
TEST(ThreadPool, LoopsFollowEachOther) {
  ThreadPool pool(4);
  std::vector<int64_t> values(5, 0);
  constexpr int64_t kLoops = 20000;
  for (int64_t loop = 0; loop < kLoops; ++loop) {
    pool.parallel_for(5, [&](int64_t task, int) {
      auto& value = values[static_cast<size_t>((task + loop) % 5)];
      value = value * 3 % 1000003 + loop;
    });
  }
  int64_t expected = 0;
  for (int64_t loop = 0; loop < kLoops; ++loop) expected = expected * 3 % 1000003 + loop;
  EXPECT_EQ(values, std::vector<int64_t>(5, expected));
}

TEST(ThreadPool, TwoTasksNeverShareAWorker) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  for (int loop = 0; loop < 200; ++loop) {
    pool.parallel_for(16, [&](int64_t, int worker) {
      EXPECT_EQ(busy[static_cast<size_t>(worker)].fetch_add(1), 0);
      std::this_thread::yield();
      busy[static_cast<size_t>(worker)].fetch_sub(1);
    });
  }
}

TEST(ThreadPool, WorkersWakeFromSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // well beyond the time they spin
    // Each task waits for the other, so that one thread alone would never end.
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](int64_t, int) {
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

// How often the calling thread has left its core, of its own will or not.
int64_t switches() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

// All threads on one core: a loop must not wait for workers that have nothing to do in it. A caller that
// waits for a worker leaves the core to it, at least once a loop; one that doesn't leaves it when its time
// slice is over, which is hundreds of these loops long.
TEST(ThreadPool, DoesNotWaitForWorkersThatCannotRun) {
  std::thread([] {  // the mask is a thread's, and the pool's threads inherit it
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    ThreadPool pool(8);
    std::atomic<int64_t> sum{0};
    constexpr int64_t kLoops = 2000;
    const int64_t before = switches();
    for (int loop = 0; loop < kLoops; ++loop) {
      pool.parallel_for(8, [&](int64_t task, int) { sum += task; });
    }
    const int64_t left = switches() - before;
    EXPECT_EQ(sum.load(), kLoops * 28);
    EXPECT_LT(left, kLoops);
    RecordProperty("switches", std::to_string(left));
  })
      .join();
}

TEST(ThreadPool, ComesAndGoes) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(3);
    if (round % 3 == 0) continue;  // never used
    std::atomic<int> runs{0};
    pool.parallel_for(3, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs.load(), 3);
    if (round % 3 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // asleep when it ends
  }
}

TEST(ThreadPoolDeathTest, LoopsDoNotNest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.parallel_for(2, [&](int64_t, int) { pool.parallel_for(2, [](int64_t, int) {}); });
      },
      "re-entrant");
}

}  // namespace
}  // namespace kv8
