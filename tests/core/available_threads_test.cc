#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "core/thread_pool.h"

namespace kv8 {
namespace {

TEST(AvailableThreads, IsBetweenOneAndTheAffinityMask) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_GE(available_threads(), 1);
  EXPECT_LE(available_threads(), CPU_COUNT(&mask));
}

TEST(AvailableThreads, FollowsTheAffinityMask) {
  // In a thread of its own: the mask is a thread's, and the other tests keep theirs.
  std::thread([] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(available_threads(), 1);
  }).join();
}

}  // namespace
}  // namespace kv8
