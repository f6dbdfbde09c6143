#include "formats/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.h"
#include "format_files.h"

namespace kv8::formats {
namespace {

using test::format_fixture;
using test::TemporaryFolder;
using test::write_bytes;
using testing::HasSubstr;

// A folder with a config and the tensors a.weight = "aa", b.weight = "bb" in two shards.
class CheckpointFolder : public testing::Test {
 protected:
  void SetUp() override {
    write_bytes(folder_ / "config.json", R"({"model_type": "llama"})");
    write_shard("one.safetensors", {"a.weight"});
    write_shard("two.safetensors", {"b.weight"});
    write_index(R"({"a.weight": "one.safetensors", "b.weight": "two.safetensors"})");
  }

  // Every tensor's bytes are its name's first letter, twice.
  void write_shard(const std::string& file, const std::vector<std::string>& names) {
    std::vector<std::string> data;
    data.reserve(names.size());
    for (const std::string& name : names) data.push_back(std::string(2, name[0]));
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < names.size(); ++i) {
      tensors.push_back(
          {names[i], {DType::u8, Shape({2}), reinterpret_cast<const std::byte*>(data[i].data()), 2}});
    }
    ASSERT_TRUE(write_safetensors(folder_ / file, tensors));
  }

  void write_index(std::string_view weight_map) {
    write_bytes(folder_ / "model.safetensors.index.json", fmt::format(R"({{"weight_map": {}}})", weight_map));
  }

  void expect_error(ErrorCode code, const std::vector<std::string>& parts) const {
    const auto opened = Checkpoint::open(folder_.path());
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    for (const std::string& part : parts) EXPECT_THAT(opened.error().message, HasSubstr(part));
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointFolder, ReadsShardsThroughTheirIndex) {
  auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint moved = std::move(*opened);
  EXPECT_THAT(moved.names(), testing::ElementsAre("a.weight", "b.weight"));
  EXPECT_EQ(static_cast<char>(moved.find("b.weight")->data[1]), 'b');
  EXPECT_EQ(moved.total_bytes(), 4U);
  EXPECT_FALSE(moved.is_gguf());
  EXPECT_EQ(moved.folder(), folder_.path());
  EXPECT_EQ(moved.config()["model_type"], "llama");
  EXPECT_THAT(moved.config_source(), HasSubstr("config.json"));
  EXPECT_EQ(moved.generation_config(), nullptr);
  EXPECT_TRUE(moved.tokenizer_config().is_null());
  EXPECT_FALSE(moved.chat_template());
  EXPECT_FALSE(moved.tokenizer_json_path());
}

TEST_F(CheckpointFolder, AnAbsentTensorNamesItsNeighbours) {
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->find("b.weigth"), nullptr);
  const auto tensor = opened->tensor("b.weigth");
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::not_found);
  EXPECT_THAT(tensor.error().message, HasSubstr("'b.weigth'; the nearest names are b.weight, a.weight"));
}

TEST_F(CheckpointFolder, IndexAndShardsMustAgree) {
  write_index(R"({"a.weight": "one.safetensors", "b.weight": "one.safetensors"})");
  expect_error(ErrorCode::corrupt_data,
               {"index.json", "b.weight", "one.safetensors doesn't have this tensor"});
  write_index(R"({"a.weight": "three.safetensors"})");
  expect_error(ErrorCode::not_found, {"three.safetensors"});
  write_index(R"({"a.weight": 7})");
  expect_error(ErrorCode::corrupt_data, {"weight_map: a.weight", "found 7"});
  write_index("[]");
  expect_error(ErrorCode::corrupt_data, {"weight_map: expected an object"});
}

TEST_F(CheckpointFolder, ShardsLieInTheFolder) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "x/one.safetensors", "..", ".", "",
                           R"(..\\one.safetensors)", R"(one.safetensors\u0000)"}) {
    write_index(fmt::format(R"({{"a.weight": "{}"}})", name));
    expect_error(ErrorCode::corrupt_data,
                 {"weight_map: a.weight: expected the name of a file in the same folder"});
  }
}

TEST_F(CheckpointFolder, TensorsThatTheIndexForgotAreReadIfTheirPlaceIsCertain) {
  write_shard("two.safetensors", {"b.weight", "k_scale"});
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_NE(opened->find("k_scale"), nullptr);
  write_shard("one.safetensors", {"a.weight", "k_scale"});
  expect_error(ErrorCode::corrupt_data, {"two.safetensors", "k_scale", "in two shards"});
}

TEST_F(CheckpointFolder, TheIndexDecidesBetweenTwoShards) {
  write_shard("one.safetensors", {"a.weight", "b.weight"});
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->total_bytes(), 4U);
}

TEST_F(CheckpointFolder, FindsTheChatTemplateWhereverItIs) {
  const auto chat_template = [this] { return Checkpoint::open(folder_.path())->chat_template(); };
  write_bytes(folder_ / "tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(chat_template(), std::nullopt);
  write_bytes(folder_ / "tokenizer_config.json", R"({"chat_template": "{{ one }}"})");
  EXPECT_EQ(chat_template(), "{{ one }}");
  write_bytes(
      folder_ / "tokenizer_config.json",
      R"({"chat_template": [7, {"name": "rag", "template": "{{ rag }}"}, {"name": "default", "template": "{{ two }}"}]})");
  EXPECT_EQ(chat_template(), "{{ two }}");
  EXPECT_EQ(Checkpoint::open(folder_.path())->chat_template_source(),
            (folder_ / "tokenizer_config.json").string() + ": chat_template");
  write_bytes(folder_ / "chat_template.jinja", "{{ three }}\n");
  EXPECT_EQ(chat_template(), "{{ three }}\n");
  EXPECT_EQ(Checkpoint::open(folder_.path())->chat_template_source(), folder_ / "chat_template.jinja");
}

TEST_F(CheckpointFolder, ReadsWhatComesWithTheModel) {
  write_bytes(folder_ / "tokenizer.json", "{}");
  write_bytes(folder_ / "tokenizer_config.json", R"({"bos_token": "<s>"})");
  write_bytes(folder_ / "generation_config.json", R"({"temperature": 0.5})");
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->tokenizer_json_path(), folder_ / "tokenizer.json");
  EXPECT_EQ(opened->tokenizer_config()["bos_token"], "<s>");
  ASSERT_NE(opened->generation_config(), nullptr);
  EXPECT_EQ((*opened->generation_config())["temperature"], 0.5);
}

TEST_F(CheckpointFolder, BrokenJsonNamesItsFile) {
  for (const char* file : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    write_bytes(folder_ / file, "{broken");
    expect_error(ErrorCode::corrupt_data, {file, "not valid JSON"});
    write_bytes(folder_ / file, "[1, 2]");
    expect_error(ErrorCode::corrupt_data, {file, "expected an object, found array"});
    write_bytes(folder_ / file, "{}");
  }
}

TEST_F(CheckpointFolder, SaysWhatIsMissing) {
  std::filesystem::remove(folder_ / "model.safetensors.index.json");
  expect_error(ErrorCode::not_found, {"neither model.safetensors nor"});
  std::filesystem::remove(folder_ / "config.json");
  write_bytes(folder_ / "tiny.gguf", "GGUF");
  expect_error(ErrorCode::not_found, {"no config.json", "there is tiny.gguf: name the file itself"});
  const auto nowhere = Checkpoint::open(folder_ / "nowhere");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::not_found);
  const auto weights = Checkpoint::open(folder_ / "one.safetensors");
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message, HasSubstr("name the folder"));
}

TEST_F(CheckpointFolder, TextNeedsNoModel) {
  const auto nothing = Checkpoint::open_text(folder_.path());
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::not_found);
  EXPECT_THAT(nothing.error().message, HasSubstr("no tokenizer.json"));
  std::filesystem::remove(folder_ / "config.json");
  write_bytes(folder_ / "tokenizer.json", "{}");
  write_bytes(folder_ / "tokenizer_config.json", R"({"bos_token": "<s>"})");
  write_bytes(folder_ / "generation_config.json", "{broken");  // none of a tokenizer's business
  const auto opened = Checkpoint::open_text(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->tokenizer_json_path(), folder_ / "tokenizer.json");
  EXPECT_EQ(opened->tokenizer_config()["bos_token"], "<s>");
  const auto gguf = Checkpoint::open_text(format_fixture("gguf/qwen3.gguf"));
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_NE(gguf->gguf(), nullptr);
}

// A link to nothing is a broken checkpoint, not one that has no such file.
TEST_F(CheckpointFolder, DanglingLinksAreNotAbsence) {
  for (const char* file : {"chat_template.jinja", "tokenizer_config.json", "generation_config.json"}) {
    std::filesystem::create_symlink("../blobs/gone", folder_ / file);
    expect_error(ErrorCode::not_found, {file, "a link to ../blobs/gone, which isn't there"});
    std::filesystem::remove(folder_ / file);
  }
  std::filesystem::create_symlink("gone", folder_ / "tokenizer.json");
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE(opened->tokenizer_json_path());  // whoever reads it gets the error
  std::filesystem::create_symlink("gone", folder_ / "model.safetensors");
  expect_error(ErrorCode::not_found, {"model.safetensors: a link to gone"});
}

TEST_F(CheckpointFolder, AGitLfsPointerIsCalledOne) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\n"
      "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
  write_bytes(folder_ / "one.safetensors", pointer);
  expect_error(ErrorCode::corrupt_data, {"one.safetensors: a Git LFS pointer", "git lfs pull"});
  write_bytes(folder_ / "model.gguf", pointer);
  const auto gguf = Checkpoint::open(folder_ / "model.gguf");
  ASSERT_FALSE(gguf);
  EXPECT_THAT(gguf.error().message, HasSubstr("model.gguf: a Git LFS pointer"));
}

TEST(Checkpoint, OpensEveryModelFixture) {
  ASSERT_FALSE(test::model_fixtures().empty());
  for (const std::string& family : test::model_fixtures()) {
    const auto folder = test::fixtures() / "models" / family;
    const auto opened = Checkpoint::open(folder);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE(opened->config().contains("model_type")) << family;
    EXPECT_GT(opened->names().size(), 10U) << family;
    size_t bytes = 0;
    for (const std::string_view name : opened->names()) bytes += opened->tensor(name)->bytes;
    EXPECT_EQ(opened->total_bytes(), bytes) << family;
    // The weights are nearly all there is in the file.
    EXPECT_LT(bytes, std::filesystem::file_size(folder / "model.safetensors")) << family;
    EXPECT_GT(bytes * 10, std::filesystem::file_size(folder / "model.safetensors") * 8) << family;
  }
}

TEST(Checkpoint, AGgufFileAloneIsAModel) {
  const auto opened = Checkpoint::open(format_fixture("gguf/qwen3.gguf"));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE(opened->is_gguf());
  ASSERT_NE(opened->gguf(), nullptr);
  EXPECT_EQ(opened->folder(), format_fixture("gguf"));
  EXPECT_EQ(opened->config()["model_type"], "qwen3");
  EXPECT_NE(opened->find("model.layers.0.self_attn.q_norm.weight"), nullptr);
  const auto absent = opened->tensor("model.layers.0.self_attn.q_norm.bias");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("model.layers.0.self_attn.q_norm.weight"));
}

}  // namespace
}  // namespace kv8::formats
