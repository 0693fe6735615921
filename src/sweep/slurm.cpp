#include "sweep/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <regex>

#include "base/child_process.h"
#include "base/nearest.h"
#include "io/file.h"

namespace millrace::sweep {
namespace {

std::vector<std::string> slurm_words(bool ranks) {
    std::vector<std::string> words = {"account", "array",     "constraint", "cpus-per-task", "exclude",
                                      "gpus",    "gres",      "job-name",   "mem",           "nodelist",
                                      "output",  "partition", "qos",        "reservation",   "time"};
    if (!ranks) return words;
    words.erase(words.begin() + 1);
    words.insert(words.end(), {"gpus-per-node", "gpus-per-task", "nodes", "ntasks", "ntasks-per-node"});
    return words;
}

base::Error slurm_error(const std::string& what) { return base::Error(what, "--slurm"); }

/// Minutes, or minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
std::optional<double> slurm_seconds(const std::string& text) {
    static const std::regex kPlain(R"((\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?)"),
        kDays(R"((\d{1,4})-(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?)");
    std::smatch part;
    const auto number = [&](size_t at) { return part[at].matched ? std::stod(part[at].str()) : 0.0; };
    if (std::regex_match(text, part, kDays)) return ((number(1) * 24 + number(2)) * 60 + number(3)) * 60 + number(4);
    if (!std::regex_match(text, part, kPlain)) return std::nullopt;
    if (part[3].matched) return (number(1) * 60 + number(2)) * 60 + number(3);
    return number(1) * 60 + number(2);
}

base::Status check_word(const std::string& name, const std::string& value, bool ranks) {
    const std::vector<std::string> known = slurm_words(ranks);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
        const std::string nearest = base::nearest_name(name, known);
        return slurm_error(fmt::format("unknown word '{}'{}; known are {}", name,
                                       nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                                       fmt::join(known, ", ")));
    }
    if (value.empty()) return slurm_error(fmt::format("'{}' has no value; write {}=VALUE", name, name));
    const auto is_plain = [](unsigned char letter) {
        return letter > ' ' && letter < 0x7f &&
               std::string_view("\"'\\#$`").find(static_cast<char>(letter)) == std::string_view::npos;
    };
    if (!std::all_of(value.begin(), value.end(), is_plain))
        return slurm_error(
            fmt::format("'{}' has a value with quotes, '#', '$' or letters beyond ASCII, which a script for sbatch does "
                        "not hold",
                        name));
    static const std::regex kArray(R"(\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?)");
    if (name == "array" && !std::regex_match(value, kArray))
        return slurm_error(fmt::format("array={} is no set of tasks; eight workers, four at a time: array=0-7%4", value));
    if (name == "time") {
        const std::optional<double> seconds = slurm_seconds(value);
        if (!seconds) return slurm_error(fmt::format("time={} is no time of Slurm; an hour is time=1:00:00 or time=60", value));
        if (*seconds < 3 * kSignalSeconds)
            return slurm_error(
                fmt::format("time={} is {:g} s; workers are told to stop up to {} s before the limit, so give them at "
                            "least {} minutes",
                            value, *seconds, 2 * kSignalSeconds, 3 * kSignalSeconds / 60));
    }
    return base::ok();
}

std::string shell_word(const std::string& word) {
    std::string out = "'";
    for (const char letter : word) out += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    return out + "'";
}

std::string shell_words(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += shell_word(word) + " ";
    return text;
}

constexpr const char* kMeeting = R"(if ! srun --mpi=list 2>&1 | grep -q pmix; then
    echo "millrace: srun --mpi=list names no pmix, by which ranks meet; install Slurm's plugin for PMIx" >&2
    exit 2
fi
# srun no longer takes it from sbatch by itself.
[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
)";

}  // namespace

bool SlurmOptions::has(std::string_view name) const {
    return std::any_of(words.begin(), words.end(), [&](const auto& word) { return word.first == name; });
}

base::Result<SlurmOptions> parse_slurm_options(std::string_view text, bool ranks) {
    SlurmOptions options;
    for (size_t at = 0; at < text.size();) {
        const size_t begin = text.find_first_not_of(" \t", at), end = std::min(text.find_first_of(" \t", begin), text.size());
        if (begin == std::string_view::npos) break;
        const std::string word(text.substr(begin, end - begin));
        at = end;
        const size_t sign = word.find('=');
        const std::string name = word.substr(0, sign), value = sign == std::string::npos ? "" : word.substr(sign + 1);
        MILLRACE_TRY(check_word(name, value, ranks));
        if (options.has(name)) return slurm_error(fmt::format("'{}' is there twice", name));
        options.words.emplace_back(name, value);
    }
    return options;
}

std::string slurm_script(const SlurmOptions& options, const std::vector<std::string>& command,
                         const std::vector<std::string>& first, const std::filesystem::path& out) {
    const bool has_ranks = !out.empty();
    std::string text = "#!/bin/bash\n";
    const auto line = [&](std::string_view name, std::string_view value) {
        text += fmt::format("#SBATCH --{}={}\n", name, value);
    };
    if (!options.has("job-name")) line("job-name", has_ranks ? "millrace-train" : "millrace-sweep");
    for (const auto& [name, value] : options.words) line(name, value);
    const bool is_array = options.has("array");
    if (!options.has("output")) line("output", is_array ? "slurm-%A_%a.out" : "slurm-%j.out");
    line("signal", fmt::format("B:USR1@{}", kSignalSeconds));
    line("open-mode", "append");  // a task that is run again goes on in its file
    text += "#SBATCH --requeue\n\n";
    text += fmt::format("# Before the time limit Slurm signals this shell. What runs saves and ends; {} is: run me again.\n",
                        kRunAgainStatus);
    text += "worker=\nearly=\nagain=\n";
    // A signal that comes before the worker is there is kept for it.
    for (const char* signal : {"USR1", "TERM"})
        if (!has_ranks)
            text += fmt::format("trap 'early={0}; [ -z \"$worker\" ] || kill -{0} \"$worker\" 2> /dev/null' {0}\n", signal);
    // srun would kill its tasks when it is told to end. Those of a cancelled job have the signal already, and a second one ends
    // them without saving.
    if (has_ranks)
        text += fmt::format(
            "trap 'again=yes; scancel --signal=TERM \"$SLURM_JOB_ID\"' USR1\ntrap : TERM\n{}more=({})\n"
            "[ ! -e {} ] || more=(--resume)\nsrun --mpi=pmix --kill-on-bad-exit=1 ",
            kMeeting, shell_words(first), shell_word((out / "manifest.json").string()));
    text += shell_words(command) + (has_ranks ? "\"${more[@]}\" " : "");
    text += R"(&
worker=$!
[ -z "$early" ] || kill -"$early" "$worker"
# A signal ends the wait, not the worker. Once it has ended, bash still knows how.
while kill -0 "$worker" 2> /dev/null; do wait "$worker"; done
wait "$worker"
status=$?
)";
    text += fmt::format(
        "if [ \"$status\" -eq {} ] || [ -n \"$again\" -a \"$status\" -ne 0 ]; then\n    exec scontrol requeue \"{}\"\nfi\nexit "
        "\"$status\"\n",
        kRunAgainStatus, is_array ? "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" : "${SLURM_JOB_ID}");
    return text;
}

base::Result<bool> submit_slurm_script(const std::string& script, const std::filesystem::path& file, int out) {
    MILLRACE_LET(written, io::write_atomically(file, std::string_view(script)));
    static_cast<void>(written);
    const char* path = std::getenv("PATH");
    if (!base::find_program("sbatch", path != nullptr ? path : "").ok()) return false;
    MILLRACE_LET(child, base::ChildProcess::prepare({"sbatch", file.string()}, {.out = out}));
    MILLRACE_TRY(child.release());
    if (const int status = child.wait(); status != 0)
        return base::Error(fmt::format("sbatch ended with {}; it says why above. The script is {}", status, file.string()),
                           "--slurm");
    return true;
}

}  // namespace millrace::sweep
