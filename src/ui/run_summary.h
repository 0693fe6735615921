#pragma once
// What a table of runs says of one: from its manifest and its metrics, read piece by piece as they grow. Everything in the folder
// may be torn, foreign or hostile; memory stays bounded.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/held_folder.h"

namespace millrace::ui {

/// From the metrics.
struct RunScores {
    std::int64_t epoch = 0, best_epoch = 0, step = 0;  ///< epochs that have ended, from 1; optimizer steps done
    std::string metric;                                ///< what the best weights are best at; empty: no epoch has ended
    std::string test_metric;                           ///< its counterpart on the test data
    std::optional<double> best, test, loss;
    std::optional<double> speed;  ///< training samples per second, of the newest epoch (before its end: of the newest interval)
    double seconds = 0;           ///< of training, all starts together
    std::vector<std::pair<double, double>> curve;  ///< epoch and loss (validation, where there is one); every nth of a long run
};

struct RunSummary : RunScores {
    std::string name;   ///< its folder, below the folder that is looked at; "." for that folder itself
    std::string kind;   ///< "training", "study" (of `sweep`), "recording" (of `record`)
    std::string state;  ///< "running", "finished", "interrupted", "failed", "killed"
    std::string model, data, device, started, ended, reason;
    std::map<std::string, std::string> recipe;  ///< "optim.lr": "0.001"
    std::string command;                        ///< the first start's
    std::size_t starts = 1;                     ///< those after the first count, too
    std::int64_t epochs = 0;                    ///< asked for
    double share = 0;                           ///< of the training that is done
};

/// Reads one run again and again.
class RunFollower {
public:
    explicit RunFollower(std::string name) : name_(std::move(name)) {}

    /// Reads what is new in the run's folder. True when the summary changed. An error: it holds no readable run.
    base::Result<bool> look(const io::HeldFolder& run);
    [[nodiscard]] const RunSummary& summary() const { return summary_; }

private:
    struct Metrics {  ///< of the rows so far
        std::uint64_t offset = 0;
        std::string pending, last;  ///< a line whose end is missing; the newest that came by the clock
        double seconds_before = 0, seconds = 0;
        bool skipping = false;  ///< within a line that is too long
        std::uint64_t epochs_seen = 0, stride = 1;
        RunScores found;
    };
    base::Status read_manifest(const io::HeldFolder& run);
    void read_metrics(const io::HeldFile& file, const io::Path& place);
    void take(std::string_view line);
    void take_row(std::string_view line);
    void add_point(double epoch, double loss);
    void finish();

    std::string name_;
    std::optional<std::string> manifest_;  ///< its text
    std::string state_;
    bool was_read_ = false;
    Metrics metrics_;
    RunSummary about_;  ///< from the manifest alone
    RunSummary summary_;
};

/// A summary for programs: `millrace runs --json` and the page. What is not known is left out, and the recipe unless wanted.
nlohmann::ordered_json run_json(const RunSummary& run, bool with_recipe = true);

/// "run/metrics.jsonl", and "metrics.jsonl" for the folder itself.
std::string below(const std::string& run, std::string_view file);

}  // namespace millrace::ui
