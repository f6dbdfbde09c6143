#include "cli/model_fetch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "embedded/kFetchModelScript.h"

extern char** environ;

namespace kv8::cli {

namespace {

constexpr std::array<std::string_view, 1> kModels = {"smollm2-135m"};

// Runs `python3 -c script name`, stderr passed through, and returns its stdout and exit status.
struct ScriptResult {
  std::string output;
  int status = 0;
};

Expected<ScriptResult> run_script(const std::string& name) {
  std::array<int, 2> pipe_ends{};
  if (::pipe(pipe_ends.data()) != 0)
    return make_error(ErrorCode::io, "cannot make a pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[1]);
  std::string program = "python3";
  std::string flag = "-c";
  std::string script(embedded::kFetchModelScript);
  std::string argument = name;
  const std::array<char*, 5> arguments = {program.data(), flag.data(), script.data(), argument.data(),
                                          nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  if (error != 0) {
    ::close(pipe_ends[0]);
    return make_error(ErrorCode::io,
                      "fetching {} needs python3 with pip: {} (Debian: apt install python3-pip)", name,
                      std::strerror(error));
  }
  ScriptResult result;
  std::array<char, 4096> buffer{};
  ssize_t count = 0;
  while ((count = ::read(pipe_ends[0], buffer.data(), buffer.size())) > 0 || (count < 0 && errno == EINTR)) {
    if (count > 0) result.output.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(pipe_ends[0]);
  while (::waitpid(child, &result.status, 0) < 0 && errno == EINTR) {
  }
  return result;
}

}  // namespace

bool is_fetchable_model(const std::string& name) {
  return std::ranges::find(kModels, name) != kModels.end();
}

std::string fetchable_models() {
  return std::string(kModels.front());
}

Expected<std::string> fetch_model(const std::string& name) {
  KV8_ASSIGN_OR_RETURN(ScriptResult result, run_script(name));
  const bool interrupted = (WIFSIGNALED(result.status) && WTERMSIG(result.status) == SIGINT) ||
                           (WIFEXITED(result.status) && WEXITSTATUS(result.status) == 128 + SIGINT);
  if (interrupted)
    return make_error(ErrorCode::cancelled, "interrupted; the next call continues the download");
  if (!WIFEXITED(result.status) || WEXITSTATUS(result.status) != 0) {
    return make_error(ErrorCode::io, "{} could not be fetched; the lines above say why", name);
  }
  while (!result.output.empty() && result.output.back() == '\n') result.output.pop_back();
  return result.output;
}

}  // namespace kv8::cli
