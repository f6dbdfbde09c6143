// Decode and prefill against float64 on the same quantised Q, K and V.
#include <algorithm>
#include <cmath>
#include <random>

#include "support.h"

namespace kv8::attention::cuda::test {

namespace {

// P has 3 bits of mantissa: one key's weight is off by up to 1/16, n of them by 2% / sqrt(n). Against float64
// with P rounded alike, what is left is the tensor core's adder, and P's that a rounding error moved to their
// neighbour.
constexpr double kQuantised = 3e-3;
constexpr double kWorstRow = 3e-2;  // a window of 17 keys, one of which moved
// BF16: P and, where it is asked for, the output are rounded to 8 bits of mantissa, off by up to 1/512.
constexpr double kRounded = 2.5e-3;
constexpr double kWorstRounded = 6e-3;

void expect_close(const World& world, int samples, const char* what) {
  const Errors e = world.compare(samples);
  const Shape& s = world.shape();
  const bool fp8 = s.format == CacheFormat::fp8;
  KV8_EXPECT(
      e.quantised < (fp8 ? kQuantised : kRounded) && e.worst < (fp8 ? kWorstRow : kWorstRounded) &&
          e.exact < 4e-2,
      "%s, %s, head_dim %d, %d/%d heads, window %lld, cap %g, sinks %d: error %.2e to rounded P (worst "
      "row %.2e), %.2e to float64",
      what, fp8 ? "fp8" : "bf16", s.head_dim, s.q_heads, s.kv_heads, static_cast<long long>(s.window),
      s.soft_cap, s.sinks, e.quantised, e.worst, e.exact);
}

// Contexts in the cache, then one step of `rows` rows on each.
void run(const Shape& shape, const std::vector<int>& contexts, const std::vector<int>& rows, uint64_t seed,
         const char* what) {
  std::vector<int> lengths;
  for (size_t i = 0; i < contexts.size(); ++i) lengths.push_back(contexts[i] + rows[i]);
  World world(shape, lengths, seed);
  std::vector<Chunk> context;
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < contexts.size(); ++i) {
    if (contexts[i] > 0) context.push_back({static_cast<int>(i), 0, contexts[i]});
    chunks.push_back({static_cast<int>(i), contexts[i], rows[i]});
  }
  if (!context.empty()) world.step(context, false);
  world.step(chunks);
  expect_close(world, 400, what);
}

}  // namespace

void decode_matches_float64() {
  uint64_t seed = 1;
  for (const CacheFormat format : {CacheFormat::fp8, CacheFormat::bf16}) {
    for (int head_dim : {64, 128, 256}) {
      for (int group : {1, 3, 4, 6, 8, 16}) {
        for (int rows : {1, 2, 5, 8}) {
          Shape shape;
          shape.format = format;
          shape.head_dim = head_dim;
          shape.kv_heads = group == 16 ? 1 : 2;
          shape.q_heads = group * shape.kv_heads;
          shape.max_decode_rows = rows;
          shape.scales = seed % 2 == 0;
          shape.padding = seed % 3 == 0 ? 128 : 0;
          shape.out_type = seed % 4 == 0 ? OutputType::bf16 : OutputType::f32;
          run(shape, {0, 1, 126, 127, 128, 700, 1531, 5000}, std::vector<int>(8, rows), seed++, "decode");
        }
      }
    }
  }
}

void prefill_matches_float64() {
  uint64_t seed = 100;
  for (int head_dim : {64, 128, 256}) {
    for (int group : {1, 3, 4, 7, 8, 16}) {
      Shape shape;
      shape.head_dim = head_dim;
      shape.kv_heads = group == 16 ? 1 : 2;
      shape.q_heads = group * shape.kv_heads;
      shape.scales = seed % 2 == 0;
      shape.padding = seed % 3 == 0 ? 128 : 0;
      shape.out_type = seed % 4 == 0 ? OutputType::bf16 : OutputType::f32;
      run(shape, {0}, {1000}, seed++, "prefill");
      run(shape, {0, 5, 127, 128, 300, 2000, 77, 1999}, {2, 130, 1, 64, 333, 50, 1, 1}, seed++,
          "prefill and decode");
    }
  }
}

void masks_match_float64() {
  uint64_t seed = 200;
  for (const CacheFormat format : {CacheFormat::fp8, CacheFormat::bf16}) {
    for (int head_dim : {64, 128, 256}) {
      for (int window : {0, 1, 17, 128, 500}) {
        for (int kind = 0; kind < 4; ++kind) {
          Shape shape;
          shape.format = format;
          shape.head_dim = head_dim;
          shape.q_heads = 10;
          shape.window = window;
          shape.sinks = kind % 2 != 0;
          shape.soft_cap = kind / 2 != 0 ? 3.0F : 0.0F;
          shape.max_decode_rows = 3;
          shape.scales = seed % 2 == 0;
          run(shape, {0, 200, 1000, 130, 1021}, {3, 3, 2, 1, 3}, seed++, "masked decode");
          if (format == CacheFormat::bf16) continue;
          run(shape, {0, 200, 1000, 130, 1021}, {900, 100, 4, 257, 3}, seed++, "masked prefill");
        }
      }
    }
  }
}

// A row comes out the same whichever way its tokens were cut into steps.
void chunking_does_not_matter() {
  for (int head_dim : {64, 128, 256}) {
    Shape shape;
    shape.head_dim = head_dim;
    shape.q_heads = 8;
    shape.sinks = true;
    const int length = 517;
    const size_t row = static_cast<size_t>(shape.q_heads) * head_dim;
    World world(shape, {length}, 11);
    world.step({{0, 0, length}});
    const std::vector<float> whole = world.output();
    for (int chunk : {1, 2, 3, 16, 17, 48, 100, 128, 129, 300, 516}) {
      World again(shape, {length}, 11);
      std::vector<float> pieces;
      for (int first = 0; first < length; first += chunk) {
        again.step({{0, first, std::min(chunk, length - first)}});
        const std::vector<float> part = again.output();
        pieces.insert(pieces.end(), part.begin(), part.end());
      }
      const double error = relative_error(pieces, whole);
      // Decode sums Q K^T in two levels always, prefill where scores are large: at head_dim 256 that shows.
      KV8_EXPECT(pieces.size() == whole.size() && error < (head_dim == 256 ? 1.5e-3 : 1e-3),
                 "head_dim %d, chunks of %d: %.2e", head_dim, chunk, error);
      const std::vector<float> last(pieces.end() - row, pieces.end());
      const std::vector<float> last_whole(whole.end() - row, whole.end());
      KV8_EXPECT(relative_error(last, last_whole) < 2e-3, "head_dim %d, chunks of %d, last row: %.2e",
                 head_dim, chunk, relative_error(last, last_whole));
    }
  }
}

}  // namespace kv8::attention::cuda::test
