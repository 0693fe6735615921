#include "bench/peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/child_process.h"
#include "base/json.h"
#include "base/processors.h"
#include "base/split.h"
#include "bench/row_recipe.h"
#include "io/file.h"

namespace millrace::bench {
namespace {

namespace fs = std::filesystem;

struct ChildOutput {
    std::string text;  ///< stdout and stderr
    int status = 0;    ///< exit status, 128 + n after a signal
};

base::Result<ChildOutput> run_child(const std::vector<std::string>& command) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return io::system_error("cannot make a pipe", command.front(), errno);
    const io::FileDescriptor reading(ends[0]);
    io::FileDescriptor writing(ends[1]);
    MILLRACE_LET(child, base::ChildProcess::prepare(command, {.out = writing.get(), .err = writing.get()}));
    MILLRACE_TRY(child.release());
    writing.reset();
    ChildOutput output;
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = read(reading.get(), buffer.data(), buffer.size())) != 0;) {
        if (got > 0) output.text.append(buffer.data(), static_cast<std::size_t>(got));
        if (got < 0 && errno != EINTR) break;
    }
    output.status = child.wait();
    return output;
}

std::string versions_text(const nlohmann::json& versions) {
    std::string text = "torch " + versions.value("torch", std::string("?"));
    for (const char* key : {"blas", "cuda", "gpu"})
        if (versions.contains(key) && versions[key].is_string()) text += ", " + versions[key].get<std::string>();
    if (versions.contains("threads") && versions["threads"].is_number())
        text += fmt::format(", {} threads", versions["threads"].get<int>());
    return text;
}

/// Keys that change how we run a step, or a number in it, and leave the peers' work as it is.
const std::vector<std::string> kSameWork{"deterministic",    "optim.beta1", "optim.beta2",   "optim.eps", "optim.lr",
                                         "precision",        "seed",        "train.capture", "train.f32", "train.memory",
                                         "train.micro_batch"};

/// Keys that a script takes as options of the same names.
std::vector<std::string> keys_followed(const std::string& script) {
    std::string keys = "train.batch members";
    if (script == "language")
        keys +=
            " data.length data.vocabulary model.width model.heads model.inner model.depth model.k model.branching "
            "model.dropout train.dropout_scale";
    if (script == "cnn") keys += " data.size data.colour model.channels model.kernel model.pool model.hidden model.dropout";
    if (script == "collective")
        keys +=
            " model.revision model.n_total model.expert_ratio model.n_experts model.expert_hidden model.expert_output "
            "model.analyst_hidden model.analyst_output model.expert_compression model.code model.hidden_scale "
            "model.member_dropout model.encoder_dropout model.head_dropout train.dropout_scale";
    return base::split(keys, ' ');
}

bool contains(const std::vector<std::string>& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// "model.expert_hidden" is "--expert-hidden".
std::string option_of(const std::string& key) {
    std::string name = key.substr(key.rfind('.') + 1);
    std::replace(name.begin(), name.end(), '_', '-');
    return "--" + name;
}

/// A value of Recipe::to_json() as an option has it: lists with commas.
std::string value_text(const nlohmann::json& values, const std::string& key) {
    const nlohmann::json* value = &values;
    for (const std::string& part : base::split(key, '.')) value = &value->at(part);
    if (value->is_string()) return value->get<std::string>();
    if (!value->is_array()) return value->dump();
    std::vector<std::string> items;
    for (const nlohmann::json& item : *value) items.push_back(base::json_text(item));
    return fmt::format("{}", fmt::join(items, ","));
}

}  // namespace

base::Result<std::string> find_peers() {
    std::vector<fs::path> candidates;
    std::error_code failed;
    if (const char* set = std::getenv("MILLRACE_PEERS"); set != nullptr) {
        candidates.emplace_back(set);
    } else {
        const fs::path binary = fs::read_symlink("/proc/self/exe", failed).parent_path();
        candidates = {binary / "bench/peers", binary.parent_path() / "bench/peers", "bench/peers"};
    }
    for (const fs::path& candidate : candidates)
        if (fs::exists(candidate / "collective.py", failed)) return candidate.string();
    return base::Error{"bench/peers/collective.py was not found; MILLRACE_PEERS names its folder"};
}

std::string peer_python(ops::DeviceKind device) {
    if (const char* set = std::getenv("MILLRACE_PYTHON"); set != nullptr) return set;
    return device == ops::DeviceKind::cpu && access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
}

bool read_peer_row(const std::string& line, PeerTimes& into) {
    const nlohmann::json row = base::json_from(line);
    if (!row.is_object() || !row.contains("peer") || !row["peer"].is_string()) return false;
    PeerTime peer;
    peer.name = row["peer"].get<std::string>();
    const auto number = [&](const char* key) { return row.contains(key) && row[key].is_number() ? row[key].get<double>() : 0.0; };
    peer.ms = number("ms");
    peer.low = number("low");
    peer.high = number("high");
    if (row.contains("error") && row["error"].is_string()) peer.error = row["error"].get<std::string>();
    if (!(peer.ms > 0) && peer.error.empty()) peer.error = "gave no time";
    if (row.contains("versions") && row["versions"].is_object()) {
        const nlohmann::json& versions = row["versions"];
        if (versions.contains("jax"))  // behind PyTorch's rows
            into.versions += (into.versions.empty() ? "jax " : ", jax ") + versions.value("jax", std::string("?"));
        else
            into.versions = versions_text(versions);
    }
    into.peers.push_back(std::move(peer));
    return true;
}

PeerTimes run_peers(const std::vector<std::string>& command) {
    PeerTimes times;
    const auto output = run_child(command);
    if (!output.ok()) {
        times.reason = output.error().text();
        return times;
    }
    std::string last;
    for (const std::string& line : base::split(output->text, '\n'))
        if (!line.empty() && !read_peer_row(line, times)) last = line;
    if (times.peers.empty())
        times.reason = last.empty() ? fmt::format("{} ended with status {}", command.front(), output->status) : last;
    return times;
}

base::Result<std::vector<std::string>> peer_command(const Workload& workload, const Options& options,
                                                    const std::string& precision) {
    if (workload.peer.empty()) return base::Error{"the workload has none"};
    MILLRACE_LET(folder, find_peers());
    MILLRACE_LET(changed, changed_keys(workload, options));
    const std::vector<std::string> followed = keys_followed(workload.peer);
    for (const std::string& key : changed)
        if (!contains(followed, key) && !contains(kSameWork, key)) return base::Error{"cannot follow " + key};
    const int threads = options.threads > 0 ? options.threads : base::usable_processors();
    std::vector<std::string> command{peer_python(options.device),
                                     folder + "/" + workload.peer + ".py",
                                     "--device",
                                     ops::name_of(options.device),
                                     "--preset",
                                     workload.peer_preset.empty() ? workload.preset : workload.peer_preset,
                                     "--precision",
                                     precision == "f32" ? "fp32" : precision,
                                     "--seconds",
                                     fmt::format("{}", options.seconds),
                                     "--threads",
                                     std::to_string(threads)};
    MILLRACE_LET(recipe, row_recipe(workload, options));
    const auto values = base::json_or_throw(recipe.to_json());
    for (const std::string& key : followed)
        if (recipe.has(key)) command.insert(command.end(), {option_of(key), value_text(values, key)});
    if (const std::string& modes = options.peer_modes.empty() ? workload.peer_modes : options.peer_modes; !modes.empty())
        command.insert(command.end(), {"--modes", modes});
    return command;
}

}  // namespace millrace::bench
