// Runs the tests whose name contains the first argument, or all. Exit code 77 (skipped) where there is no
// Hopper GPU.
#include <chrono>
#include <cstring>

#include "support.h"

namespace {

using namespace kv8::attention::cuda::test;

struct Test {
  const char* name;
  void (*run)();
};

constexpr Test kTests[] = {
    {"append_matches_host", append_matches_host},
    {"append_counts_saturations", append_counts_saturations},
    {"append_rounds_ties_by_the_reciprocal", append_rounds_ties_by_the_reciprocal},
    {"decode_matches_float64", decode_matches_float64},
    {"prefill_matches_float64", prefill_matches_float64},
    {"masks_match_float64", masks_match_float64},
    {"modes_differ_as_documented", modes_differ_as_documented},
    {"chunking_does_not_matter", chunking_does_not_matter},
    {"ones_give_one", ones_give_one},
    {"growing_scores", growing_scores},
    {"sinks_and_needles", sinks_and_needles},
    {"long_contexts", long_contexts},
    {"scales_fold", scales_fold},
    {"learned_sinks_and_scales", learned_sinks_and_scales},
    {"poison_never_reaches", poison_never_reaches},
    {"graphs_replay", graphs_replay},
    {"many_parts_merge", many_parts_merge},
    {"table_refuses", table_refuses},
    {"append_refuses", append_refuses},
};

}  // namespace

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9 ||
      properties.minor != 0) {
    std::printf("skipped: no GPU of compute capability 9.0\n");
    return 77;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what hangs should be seen to
  int failed = 0;
  for (const Test& test : kTests) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    failures = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::printf("%s\n", test.name);
    test.run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%s %s (%.1f s)\n", failures == 0 ? "  ok" : "  FAILED", test.name, seconds.count());
    std::fflush(stdout);
    failed += failures > 0 ? 1 : 0;
  }
  std::printf(failed == 0 ? "all tests passed\n" : "%d tests failed\n", failed);
  return failed == 0 ? 0 : 1;
}
