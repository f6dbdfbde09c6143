// What must hold around the numbers: poisoned pools, graphs, many parts, refusals.
#include <cmath>
#include <cstring>

#include "support.h"

namespace kv8::attention::cuda::test {

// Every other test runs on a pool full of e4m3's NaN; here the other NaN, and pages used before by NaN
// values.
void poison_never_reaches() {
  for (int poison : {0x7F, 0xFF}) {
    Shape shape;
    shape.poison = poison;
    World world(shape, {300, 20, 129}, 21);
    world.step({{0, 0, 100}, {1, 0, 1}, {2, 0, 128}});
    for (float x : world.output()) KV8_EXPECT(std::isfinite(x), "%g", x);
    world.step({{0, 100, 1}, {1, 1, 1}, {2, 128, 1}});  // a page's first token among them
    KV8_EXPECT(world.compare(100).quantised < 3e-3, "decode");
    world.step({{0, 101, 199}, {1, 2, 18}});
    KV8_EXPECT(world.compare(100).quantised < 3e-3, "prefill");
  }
}

// A graph's replay gives the bits of the eager launch, and follows the lengths in device memory.
void graphs_replay() {
  for (int head_dim : {64, 128, 256}) {
    Shape shape;
    shape.head_dim = head_dim;
    shape.q_heads = 8;
    shape.max_decode_rows = 2;
    World world(shape, {3000, 600, 2000, 70}, 31);
    world.step({{0, 0, 3000}, {1, 0, 600}, {2, 0, 2000}, {3, 0, 70}}, false);
    world.step({{0, 2800, 1}, {1, 400, 2}, {2, 1700, 200}, {3, 50, 1}});
    const std::vector<uint8_t> eager = world.output_bytes();

    cudaStream_t stream;
    require(cudaStreamCreate(&stream), "cudaStreamCreate");
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    world.launch(stream);
    require(cudaStreamEndCapture(stream, &graph), "end capture");
    require(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
    for (int i = 0; i < 3; ++i) require(cudaGraphLaunch(executable, stream), "graph launch");
    require(cudaStreamSynchronize(stream), "replay");
    KV8_EXPECT(world.output_bytes() == eager, "head_dim %d: replayed bits differ", head_dim);

    world.move_sequences(17);
    require(cudaGraphLaunch(executable, stream), "graph launch");
    require(cudaStreamSynchronize(stream), "replay");
    const std::vector<uint8_t> moved = world.output_bytes();
    KV8_EXPECT(moved != eager, "head_dim %d: new lengths, same output", head_dim);
    world.launch(nullptr);
    require(cudaDeviceSynchronize(), "eager");
    KV8_EXPECT(world.output_bytes() == moved, "head_dim %d: moved bits differ", head_dim);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

// One KV head spread over every CTA: merged in groups.
void many_parts_merge() {
  for (const CacheFormat format : {CacheFormat::fp8, CacheFormat::bf16}) {
    for (int head_dim : {64, 128, 256}) {
      for (int length : {5000, 40000, 140003}) {
        Shape shape;
        shape.format = format;
        shape.head_dim = head_dim;
        shape.kv_heads = 1;
        shape.q_heads = 8;
        shape.max_decode_rows = 4;
        World world(shape, {length, 3000}, 41);
        world.fill_context(0, length - 4);
        world.fill_context(1, 2990);
        for (int repeat = 0; repeat < 3; ++repeat) {  // the counters must be as they were
          world.step({{1, 2990, 1}, {0, length - 4, 4}});
          const Errors e = world.compare(40);
          KV8_EXPECT(e.quantised < 3e-3 && e.worst < 1e-2,
                     "format %d, head_dim %d, %d keys: %.2e, worst %.2e", static_cast<int>(format), head_dim,
                     length, e.quantised, e.worst);
          const std::vector<uint8_t> first = world.output_bytes();
          world.launch(nullptr);
          require(cudaDeviceSynchronize(), "again");
          KV8_EXPECT(world.output_bytes() == first, "head_dim %d, %d keys: not the same bits twice", head_dim,
                     length);
        }
      }
    }
  }
}

// What there is no kernel for is refused, with the reason.
void table_refuses() {
  PlanParams plan;
  Sequence* sequences = reinterpret_cast<Sequence*>(256);
  plan.batch = {sequences, 1, 1, reinterpret_cast<int32_t*>(256), 1};
  plan.q_heads = 8;
  plan.kv_heads = 2;
  plan.head_dim = 96;
  Status status = make_plan(plan, nullptr, nullptr);
  KV8_EXPECT(
      status.code == Status::Code::unsupported && std::strstr(status.message, "head_dim is 96") != nullptr,
      "%s", status.message);
  plan.head_dim = 128;
  plan.q_heads = 9;
  status = make_plan(plan, nullptr, nullptr);
  KV8_EXPECT(status.code == Status::Code::invalid_argument, "%s", status.message);
  plan.q_heads = 34;
  status = make_plan(plan, nullptr, nullptr);
  KV8_EXPECT(status.code == Status::Code::unsupported && std::strstr(status.message, "1 to 16") != nullptr,
             "%s", status.message);
  plan.q_heads = 8;

  AttentionParams p;
  p.shape = plan;
  p.plan = p.workspace = p.out = reinterpret_cast<void*>(256);
  p.q = reinterpret_cast<uint8_t*>(256);
  p.q_scale = reinterpret_cast<float*>(256);
  const int64_t head = head_bytes(CacheFormat::fp8, 128);
  p.cache = {CacheFormat::fp8, reinterpret_cast<uint8_t*>(256), 2 * head, head, 2, 128, nullptr, nullptr};
  p.softmax_scale = 0.1F;
  p.accumulate = Fp8Accumulate::two_level;
  status = prefill(p, nullptr);
  KV8_EXPECT(
      status.code == Status::Code::unsupported && std::strstr(status.message, "mode two-level") != nullptr,
      "%s", status.message);
  p.cache.head_stride -= 128;
  status = decode(p, nullptr);
  KV8_EXPECT(
      status.code == Status::Code::invalid_argument && std::strstr(status.message, "head_stride") != nullptr,
      "%s", status.message);

  p.cache.head_stride += 128;
  char text[8192];
  const size_t length = explain_kernels(&p, text, sizeof text);
  KV8_EXPECT(length < sizeof text &&
                 std::strstr(text, "decode takes: fp8, head_dim 128, 8 columns, mode two-level") != nullptr &&
                 std::strstr(text, "prefill takes none") != nullptr,
             "%s", text);
  const auto misaligned = [&](auto member, const char* name) {
    AttentionParams shifted = p;
    member(shifted);
    const Status refusal = decode(shifted, nullptr);
    KV8_EXPECT(refusal.code == Status::Code::invalid_argument &&
                   std::strstr(refusal.message, name) != nullptr &&
                   std::strstr(refusal.message, "aligned to"),
               "%s: %s", name, refusal.message);
  };
  misaligned([](AttentionParams& x) { x.q = reinterpret_cast<void*>(264); }, "q is at");
  misaligned([](AttentionParams& x) { x.out = reinterpret_cast<void*>(260); }, "out is at");
  misaligned([](AttentionParams& x) { x.plan = reinterpret_cast<void*>(264); }, "plan is at");
  misaligned([](AttentionParams& x) { x.workspace = reinterpret_cast<void*>(272); }, "workspace is at");
  p.cache.format = CacheFormat::bf16;
  status = decode(p, nullptr);
  KV8_EXPECT(status.code == Status::Code::invalid_argument && std::strstr(status.message, "head_stride"),
             "%s", status.message);
  p.cache.head_stride *= 2;
  p.cache.page_stride *= 2;
  status = decode(p, nullptr);
  KV8_EXPECT(status.code == Status::Code::invalid_argument &&
                 std::strstr(status.message, "the plan is for a cache in fp8") != nullptr,
             "%s", status.message);

  char small[10];
  KV8_EXPECT(explain_kernels(&p, small, sizeof small) == length && std::strlen(small) == 9, "truncation");
}

// Append refuses what it can't do, and rows of no sequence are nothing to do.
void append_refuses() {
  AppendParams p;
  p.batch = {reinterpret_cast<Sequence*>(256), 1, 1, reinterpret_cast<int32_t*>(256), 1};
  const int64_t head = head_bytes(CacheFormat::bf16, 128);
  p.cache = {CacheFormat::bf16, reinterpret_cast<uint8_t*>(256), 2 * head, head, 2, 128, nullptr, nullptr};
  p.q_heads = 4;
  p.qkv = p.q = reinterpret_cast<void*>(256);
  p.qkv_stride = 8 * 128;
  const auto refused = [&](auto change, const char* message) {
    AppendParams changed = p;
    change(changed);
    const Status status = append(changed, nullptr);
    KV8_EXPECT(status.code != Status::Code::ok && status.code != Status::Code::cuda_error &&
                   std::strstr(status.message, message) != nullptr,
               "expected '%s', got '%s'", message, status.message);
  };
  const auto scale = reinterpret_cast<float*>(256);
  refused([](AppendParams& x) { x.qkv = reinterpret_cast<void*>(264); }, "qkv is at");
  refused([](AppendParams& x) { x.q = reinterpret_cast<void*>(264); }, "q is at");
  refused([](AppendParams& x) { x.qkv_stride = 8 * 128 - 8; }, "qkv_stride");
  refused([&](AppendParams& x) { x.cache.k_scale = scale; }, "BF16 cache has no scales");
  refused([](AppendParams& x) { x.cache.format = CacheFormat::fp8; }, "q_scale is null");
  refused([](AppendParams& x) { x.cache.pool += 64; }, "aligned to 128");
  refused(
      [&](AppendParams& x) {
        x.rope = RopeKind::half_split;
        x.inverse_frequencies = scale;
        x.rotary_dim = 40;
      },
      "multiples of 16");
  p.batch.sequence_count = 0;
  p.batch.sequences = nullptr;
  p.batch.page_tables = nullptr;
  const Status status = append(p, nullptr);
  KV8_EXPECT(status.code == Status::Code::ok && cudaDeviceSynchronize() == cudaSuccess, "%s", status.message);
}

}  // namespace kv8::attention::cuda::test
