// What attention costs follows the tokens that its queries see: no other page of the pool is touched. The
// other pages can't be read here, so that a touch ends the test.
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attention/cpu/attention_case.h"

namespace kv8::attention::test {
namespace {

// A copy of a pool of cache pages in memory of its own, where only the pages of `readable` can be read.
class GuardedPool {
 public:
  GuardedPool(const std::byte* from, int64_t pages, int64_t page_bytes, const std::vector<int32_t>& readable)
      : size_(static_cast<size_t>(pages * page_bytes)) {
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    data_ = static_cast<std::byte*>(memory);
    std::memcpy(data_, from, size_);
    valid_ = mprotect(data_, size_, PROT_NONE) == 0;
    for (const int32_t page : readable)
      valid_ = valid_ && mprotect(data_ + page * page_bytes, static_cast<size_t>(page_bytes), PROT_READ) == 0;
  }
  ~GuardedPool() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  GuardedPool(const GuardedPool&) = delete;
  GuardedPool& operator=(const GuardedPool&) = delete;

  bool valid() const { return valid_; }
  std::byte* data() { return data_; }

 private:
  size_t size_;
  std::byte* data_ = nullptr;
  bool valid_ = false;
};

class PagesRead : public testing::TestWithParam<Accumulate> {};

TEST_P(PagesRead, AreThoseThatTheQueriesSee) {
  ThreadPool threads(2);
  for (const int64_t queries : {1, 9}) {
    for (const int64_t window : {0, 200}) {
      CaseOptions options{.q_heads = 6, .kv_heads = 2, .head_dim = 128};
      options.tokens = 6 * kPageTokens + 5;
      options.queries = queries;
      options.window = window;
      options.spare_pages = 40;
      AttentionCase problem(options);
      problem.store();
      const auto before = problem.run(GetParam(), threads);

      const int64_t page_bytes = problem.cache().page_bytes();
      ASSERT_EQ(page_bytes % sysconf(_SC_PAGESIZE), 0);
      std::vector<int32_t> seen = problem.page_table();
      const int64_t pool_pages = static_cast<int64_t>(seen.size()) + options.spare_pages;
      if (window > 0) {
        const int64_t first_key = options.tokens - queries - window + 1;
        seen.erase(seen.begin(), seen.begin() + first_key / kPageTokens);
      }
      GuardedPool keys(problem.cache().k, pool_pages, page_bytes, seen);
      GuardedPool values(problem.cache().v, pool_pages, page_bytes, seen);
      ASSERT_TRUE(keys.valid() && values.valid());
      problem.cache().k = keys.data();
      problem.cache().v = values.data();
      EXPECT_EQ(problem.run(GetParam(), threads), before) << "window " << window << " queries " << queries;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PagesRead,
                         testing::Values(Accumulate::f32, Accumulate::exact, Accumulate::tile,
                                         Accumulate::two_level, Accumulate::single),
                         [](const auto& info) {
                           std::string name(to_string(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kv8::attention::test
