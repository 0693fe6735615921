#pragma once
// Workers of a study, or the ranks of a training run, as a job of a Slurm cluster: the script for sbatch, and its submission.

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace::sweep {

/// What a worker ends with when it was told to stop and has given back its trials: it wants to be run again.
constexpr int kRunAgainStatus = 75;
/// How long before the time limit a worker is told to stop. Slurm may be up to a minute early.
constexpr int kSignalSeconds = 60;

struct SlurmOptions {
    std::vector<std::pair<std::string, std::string>> words;  ///< options of sbatch with their values, as given
    [[nodiscard]] bool has(std::string_view name) const;
};

/// "partition=gpu gres=gpu:1 array=0-7%4 time=1:00:00". Refuses unknown and repeated words, empty values and those that the
/// script could not hold, arrays and times that are none, and times too short for the signal before the limit. Workers may be an
/// array, `ranks` have nodes and tasks.
base::Result<SlurmOptions> parse_slurm_options(std::string_view text, bool ranks = false);

/// A script for sbatch that runs `command` once in each task. It passes SIGUSR1, which it gets before the time limit, and SIGTERM
/// on to the command, requeues its task when the command ends with kRunAgainStatus, and else ends with the command's status.
/// With `out`, of a training run in that directory: all tasks run `command` and meet. It has the words `first`, and --resume
/// instead once the run has a manifest. Before the time limit the ranks get SIGTERM and the job is queued again.
std::string slurm_script(const SlurmOptions& options, const std::vector<std::string>& command,
                         const std::vector<std::string>& first = {}, const std::filesystem::path& out = {});

/// Writes the script to `file` and hands it to sbatch, which prints the job's number to the descriptor `out` (-1: standard
/// output); false where no sbatch is in PATH. An error when sbatch refuses it.
base::Result<bool> submit_slurm_script(const std::string& script, const std::filesystem::path& file, int out = -1);

}  // namespace millrace::sweep
