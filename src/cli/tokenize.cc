// kv8 tokenize: text to ids, ids to text.
#include <limits>
#include <memory>

#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/whole_number.h"
#include "core/json.h"

namespace kv8::cli {

namespace {

struct TokenizeOptions {
  std::string model;
  TextSource text;
  std::vector<int32_t> ids;
  bool decode = false;
  bool special = false;
  bool json = false;
};

Json token_list(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json tokens = Json::array();
  for (const int32_t id : ids) tokens.push_back({{"id", id}, {"token", tokenizer.token_text(id)}});
  return tokens;
}

Expected<int> execute(TokenizeOptions& options) {
  KV8_ASSIGN_OR_RETURN(const std::string path, locate_model(options.model));
  KV8_ASSIGN_OR_RETURN(const formats::Checkpoint checkpoint, formats::Checkpoint::open_text(path));
  KV8_ASSIGN_OR_RETURN(const auto tokenizer, engine::load_tokenizer(checkpoint));
  if (!tokenizer) return make_error(ErrorCode::not_found, "{}: no vocabulary (tokenizer.ggml.model)", path);
  if (options.decode) {
    for (const int32_t id : options.ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) {
        return make_error(ErrorCode::invalid_argument, "id {} is outside of the vocabulary, 0 to {}", id,
                          tokenizer->vocab_size() - 1);
      }
    }
    KV8_ASSIGN_OR_RETURN(const std::string text, tokenizer->decode(options.ids));
    if (options.json) {
      print_output("{}\n", Json{{"text", text}}.dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
      print_output("{}\n", text);
    }
    return exit_ok;
  }
  KV8_ASSIGN_OR_RETURN(const std::string text, read_text_source(options.text));
  KV8_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       tokenizer->encode(text, {.add_special_tokens = options.special}));
  if (options.json) {
    const Json json = {{"count", ids.size()}, {"ids", ids}, {"tokens", token_list(*tokenizer, ids)}};
    print_output("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_output("{}\n", fmt::join(ids, " "));
  }
  return exit_ok;
}

}  // namespace

void add_tokenize(CLI::App& app, Selected& selected) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  command->footer(
      "MODEL may be a folder with a tokenizer.json alone, or a GGUF with a vocabulary alone.\n\nExamples:\n  "
      "kv8 tokenize smollm2-135m -p \"Hello world\"\n  kv8 tokenize smollm2-135m --decode 19556 "
      "905");
  auto options = std::make_shared<TokenizeOptions>();
  add_model_argument(*command, options->model);
  add_text_source(*command, options->text);
  CLI::Option* decode = command->add_option("-d,--decode", options->ids, "Ids to turn into text")
                            ->check(whole_number(0, std::numeric_limits<int32_t>::max()));
  command->add_flag("--special", options->special,
                    "Add what the model expects around a text (begin-of-sequence)");
  command->add_flag("--json", options->json, "Print JSON, with the text of each token");
  command->callback([options, decode, &selected] {
    options->decode = decode->count() > 0;
    selected = work(options, execute);
  });
}

}  // namespace kv8::cli
