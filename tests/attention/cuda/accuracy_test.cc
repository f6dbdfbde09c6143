// What FP8 attention gets wrong elsewhere: V = 1 that isn't, saturation, sinks that swallow the rest, long
// contexts.
#include <algorithm>
#include <cmath>
#include <random>

#include "support.h"

namespace kv8::attention::cuda::test {

namespace {

std::vector<float> random_vector(int count, uint64_t seed, float scale) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// Makes all query heads of a KV head ask the same, and one key answer with the given logit.
void plant(World& world, int sequence, int position, int query_position, float logit, bool zero_value,
           float query_scale = 1.0F) {
  const Shape& s = world.shape();
  const int group = s.q_heads / s.kv_heads;
  for (int head = 0; head < s.kv_heads; ++head) {
    const std::vector<float> q = random_vector(s.head_dim, 1000 + head, query_scale);
    for (int i = 0; i < group; ++i)
      world.set_token(sequence, query_position, (head * group + i) * s.head_dim, q);
    if (position < 0) continue;
    float square = 0.0F;
    for (float x : q) square += x * x;
    std::vector<float> k = q;
    for (float& x : k) x *= logit * std::sqrt(static_cast<float>(s.head_dim)) / square;
    world.set_token(sequence, position, (s.q_heads + head) * s.head_dim, k);
    if (zero_value)
      world.set_token(sequence, position, (s.q_heads + s.kv_heads + head) * s.head_dim,
                      std::vector<float>(s.head_dim, 0.0F));
  }
}

Shape one_head() {
  Shape shape;
  shape.kv_heads = 1;
  shape.q_heads = 4;
  return shape;
}

}  // namespace

// With V = 1 attention is 1, for any scores and any length.
void ones_give_one() {
  for (int head_dim : {64, 128, 256}) {
    for (int length : {1000, 9000, 65537, 1 << 20}) {
      if (length == 1 << 20 && head_dim != 128) continue;
      for (int kind = 0; kind < 5; ++kind) {
        Shape shape = one_head();
        shape.head_dim = head_dim;
        World world(shape, {length}, 40 + kind);
        world.set_all_values(1.0F);
        const int prefill_rows = 5;
        for (int row = 0; row <= prefill_rows; ++row) {  // the last rows: a chunk, then a decode token
          const int query = length - 1 - row;
          if (kind == 0) plant(world, 0, -1, query, 0.0F, false, 0.0F);  // uniform
          if (kind == 1) plant(world, 0, -1, query, 0.0F, false, 1.5F);  // log-normal
          if (kind >= 2)
            plant(world, 0, kind == 2 ? 0 : kind == 3 ? length / 2 : length - 1, query, 14.0F, false);
        }
        world.fill_context(0, length - 1 - prefill_rows);
        for (int prefill = 1; prefill >= 0; --prefill) {
          world.step(
              {prefill != 0 ? Chunk{0, length - 1 - prefill_rows, prefill_rows} : Chunk{0, length - 1, 1}});
          float worst = 0.0F;
          for (float x : world.output())
            worst = std::isnan(x) ? INFINITY : std::max(worst, std::fabs(x - 1.0F));
          KV8_EXPECT(worst < 5e-3F, "%s, head_dim %d, %d keys, scores %d: off by %.2e",
                     prefill != 0 ? "prefill" : "decode", head_dim, length, kind, worst);
        }
      }
    }
  }
}

// The maximum grows from tile to tile.
void growing_scores() {
  Shape shape = one_head();
  const int length = 3000;
  World world(shape, {length}, 50);
  const std::vector<float> q = random_vector(128, 1000, 1.0F);
  float square = 0.0F;
  for (float x : q) square += x * x;
  for (int position = 0; position < length; ++position) {
    std::vector<float> k = random_vector(128, position, 0.1F);
    for (int i = 0; i < 128; ++i) k[i] += q[i] * 0.02F * position * std::sqrt(128.0F) / square;
    world.set_token(0, position, 4 * 128, k);
  }
  for (int row = 0; row < 40; ++row) plant(world, 0, -1, length - 1 - row, 0.0F, false);
  world.fill_context(0, length - 40);
  world.step({{0, length - 40, 39}});
  Errors e = world.compare(100);
  KV8_EXPECT(e.quantised < 4e-3 && e.worst < 2e-2, "prefill: %.2e, worst %.2e", e.quantised, e.worst);
  world.step({{0, length - 1, 1}});
  e = world.compare(100);
  KV8_EXPECT(e.quantised < 4e-3 && e.worst < 2e-2, "decode: %.2e, worst %.2e", e.quantised, e.worst);
}

// The table of docs/kernels.md: relative error to float64 at 128K keys, split over CTAs and in one chain.
void sinks_and_needles() {
  struct Case {
    const char* name;
    int length;
    float sink;
    bool needle;
    double limit;
  };
  const Case cases[] = {{"diffuse", 131072, 0, false, 1.3e-3},   {"sink +12", 131072, 12, false, 1.3e-3},
                        {"sink +16", 131072, 16, false, 1.3e-3}, {"needle", 131072, 0, true, 1.3e-3},
                        {"diffuse", 524288, 0, false, 1.3e-3},   {"sink +16", 524288, 16, false, 2.5e-3},
                        {"needle", 524288, 0, true, 1.3e-3},     {"sink +12, 32K", 32768, 12, false, 1.5e-3}};
  for (const CacheFormat format : {CacheFormat::fp8, CacheFormat::bf16}) {
    for (const Case& c : cases) {
      Shape shape;
      shape.format = format;
      shape.q_heads = 8;
      shape.v_mean = 0.3F;
      World world(shape, {c.length}, 60);
      const int last = c.length - 1;
      const int planted = c.sink > 0 ? 0 : c.needle ? c.length / 2 + 37 : -1;
      plant(world, 0, planted, last, c.needle ? std::log(c.length * 1.65F) : c.sink, c.sink > 0);
      world.fill_context(0, c.length);
      world.step({{0, last, 1}});
      const Errors split = world.compare(8);
      // The same row 132 times, 2 heads each: a CTA for each, where there are 132 multiprocessors and two
      // CTAs to each.
      world.step(std::vector<Chunk>(132, {0, last, 1}));
      const Errors chain = world.compare(24);
      std::printf("  %s %-14s %7d keys: decode split %.2e, one chain %.2e, mean bias %.1e\n",
                  format == CacheFormat::fp8 ? "fp8 " : "bf16", c.name, c.length, split.exact, chain.exact,
                  split.bias);
      KV8_EXPECT(split.exact < c.limit && chain.exact < c.limit, "limit %.1e", c.limit);
    }
  }
}

// The modes are what they say: behind a sink, in one long chain of tiles, each loses what docs/numerics.md
// says.
void modes_differ_as_documented() {
  double error[3];
  for (int mode = 0; mode < 3; ++mode) {
    Shape shape;
    shape.q_heads = 8;
    shape.accumulate = static_cast<Fp8Accumulate>(mode);
    const int length = 65536;
    World world(shape, {length}, 61);
    plant(world, 0, 0, length - 1, 12.0F, true);
    world.fill_context(0, length);
    world.step(std::vector<Chunk>(132, {0, length - 1, 1}));
    error[mode] = world.compare(24).exact;
  }
  std::printf("  sink +12, 65,536 keys, one chain: tile %.1e, two-level %.1e, single %.1e\n", error[0],
              error[1], error[2]);
  KV8_EXPECT(error[0] < 1.5e-3 && error[1] > 3 * error[0] && error[1] < 5e-2 && error[2] > 5e-2, "see above");
}

// V ~ N(0.5, 1), logits N(0, 1): 8K, 128K and 1M keys, decode and the prefill of a chunk at the end.
void long_contexts() {
  for (int head_dim : {64, 128, 256}) {
    for (int length : {8192, 131072, 1 << 20}) {
      if (length == 1 << 20 && head_dim != 128) continue;
      Shape shape = one_head();
      shape.head_dim = head_dim;
      World world(shape, {length}, 70);
      world.fill_context(0, length - 65);
      world.step({{0, length - 65, 64}});
      const Errors prefill = world.compare(64);
      world.step({{0, length - 1, 1}});
      const Errors decode = world.compare(64);
      std::printf("  head_dim %3d, %7d keys: decode %.2e (bias %.1e), prefill %.2e (bias %.1e)\n", head_dim,
                  length, decode.exact, decode.bias, prefill.exact, prefill.bias);
      const double limit = head_dim == 128 ? 1.5e-3 : 2.5e-3;
      KV8_EXPECT(decode.exact < limit && std::fabs(decode.bias) < 2e-4, "decode, %d keys", length);
      KV8_EXPECT(prefill.exact < 2.5e-3 && std::fabs(prefill.bias) < 2e-4, "prefill, %d keys", length);
    }
  }
}

// Numbers times s, stored with s times the scale, give s times the output (K: the same logits from q /
// s).
void scales_fold() {
  for (int head_dim : {64, 128, 256}) {
    Shape shape = one_head();
    shape.head_dim = head_dim;
    const std::vector<Chunk> context = {{0, 0, 1400}};
    std::vector<float> outputs[2][2];
    for (int scaled = 0; scaled < 2; ++scaled) {
      World world(shape, {1500}, 80);
      if (scaled != 0) {
        world.set_scale(0.25F, 0.125F);
      } else {
        world.set_scale(1.0F, 1.0F);
      }
      world.step(context, false);
      for (int phase = 0; phase < 2; ++phase) {
        world.step({{0, 1400, phase == 0 ? 1 : 90}});
        outputs[scaled][phase] = world.output();
        const Errors e = world.compare(50);
        KV8_EXPECT(e.quantised < 3e-3, "scale %d: %.2e", scaled, e.quantised);
      }
    }
    // Scales that are powers of two change no rounding but that of subnormals.
    for (int phase = 0; phase < 2; ++phase) {
      KV8_EXPECT(relative_error(outputs[0][phase], outputs[1][phase]) < 5e-3, "head_dim %d, phase %d: %.2e",
                 head_dim, phase, relative_error(outputs[0][phase], outputs[1][phase]));
    }
  }
}

// A learned sink is a logit of its own; the scale of K has no part in it.
void learned_sinks_and_scales() {
  Shape shape = one_head();
  shape.sinks = true;
  std::vector<float> outputs[2];
  for (int scaled = 0; scaled < 2; ++scaled) {
    World world(shape, {40}, 90);
    world.set_scale(scaled != 0 ? 0.0625F : 1.0F, 1.0F);
    world.step({{0, 0, 39}});
    world.step({{0, 39, 1}});
    outputs[scaled] = world.output();
    const Errors e = world.compare(4);
    KV8_EXPECT(e.quantised < 3e-3, "%.2e", e.quantised);
  }
  KV8_EXPECT(relative_error(outputs[0], outputs[1]) < 2e-2, "%.2e", relative_error(outputs[0], outputs[1]));
}

}  // namespace kv8::attention::cuda::test
