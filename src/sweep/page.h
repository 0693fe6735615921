#pragma once
// sweep.html: a study in one file that needs no network. History, parallel coordinates, importance, Pareto front, learning
// curves, finalists and a table of all trials. Everything is in the file as HTML and SVG; the script sorts, points and selects.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plot/chart.h"
#include "search/space.h"
#include "search/trial.h"
#include "storage/study.h"

namespace millrace::sweep {

struct PageData {
    std::string study;  ///< its name
    search::Space space;
    std::vector<storage::Objective> objectives;  ///< at least one
    std::vector<std::string> constraints;        ///< in words: "parameters at most 600000"; one for each violation of a trial
    /// By number, as storage::Study::trials() gives them: configurations of the space, as many values as objectives, smaller is
    /// better. The page shows values with their metric's sign.
    std::vector<storage::StoredTrial> trials;
    std::vector<search::Finalist> finalists;  ///< best first
    std::vector<double> importance;           ///< one share for each parameter; empty: too few trials
    std::string command;                      ///< that started the sweep
    std::string recipe;                       ///< its path
    double seconds = 0;                       ///< the sweep took
    std::string test = {};                    ///< of the best finalist: "test_accuracy 0.936 +- 0.0035"; empty: not looked at
};

/// The whole document. Names and texts of the data are escaped.
std::string page(const PageData& data);

// What the parts of the page share: what is shown of each trial, in which order and colour.

/// Classes of colour by the first objective: the best tenth, then four equal parts.
constexpr size_t kColours = 5;

class PageView {
public:
    explicit PageView(const PageData& study);  ///< keeps a reference

    const PageData& data;
    std::vector<search::Trial> trials;      ///< the data's
    std::vector<search::Objectives> shown;  ///< final values, or those of the last report; empty: none. NaN may be among them
    std::vector<size_t> best_first;         ///< positions of all trials; those that nothing is known of are last
    std::vector<size_t> front;              ///< positions: no complete and feasible trial is better in all objectives

    [[nodiscard]] size_t objectives() const { return data.objectives.size(); }
    [[nodiscard]] bool is_complete(size_t at) const { return trials[at].state == search::TrialState::complete; }
    /// Complete, with finite values and no violated constraint: may win.
    [[nodiscard]] bool counts(size_t at) const;
    /// A value as its metric has it, and the metric's value of a trial; nothing where it is not finite or absent.
    [[nodiscard]] double as_metric(size_t objective, double value) const {
        return data.objectives[objective].signed_value(value);
    }
    [[nodiscard]] std::optional<double> metric(size_t at, size_t objective) const;
    /// The colour of a trial: 0 for the best; nothing without a value.
    [[nodiscard]] std::optional<size_t> colour(size_t at) const { return colours_[at]; }
    /// "waiting", "running", "paused", "complete", "pruned", "failed", "infeasible".
    [[nodiscard]] const char* state(size_t at) const;

    /// An axis over values of an objective. A few that are far worse than the rest do not stretch it: they are drawn at its end.
    [[nodiscard]] plot::Axis axis(size_t objective, std::vector<double> metrics) const;
    /// The same for all trials: those that are complete decide, when there are some. Short trials are much worse.
    [[nodiscard]] plot::Axis axis(size_t objective) const;
    /// "optim.lr=0.00123" for each parameter, with six figures: for reading.
    [[nodiscard]] std::vector<std::string> short_settings(const search::Configuration& configuration) const;

private:
    std::vector<std::optional<size_t>> colours_;
};

/// Six figures; "NaN", "infinite".
std::string number_text(double value);
/// "accuracy (larger is better)"
std::string objective_text(const storage::Objective& objective);
/// "2m 5s"
std::string seconds_text(double seconds);
/// "1 trial", "12 trials".
std::string count_text(size_t count, const char* noun);
/// A part of the page below a heading; `title` and `lead` are HTML.
std::string section(const char* id, const std::string& title, const std::string& lead, const std::string& inside);
/// What may be wider or higher than its place, which then scrolls.
std::string scrolling(const char* css_class, const char* label, const std::string& inside);
/// A dot of a chart that is `trial`'s; x and y are shares of the axes.
std::string dot(int64_t trial, const std::string& css_class, double x, double y);

// The sections of the page, as HTML; empty where there is nothing to show. Pictures with two axes first.
/// The best value so far over trials and over time, for each objective.
std::string history_section(const PageView& view);
/// The trials that no other is better than in both of two objectives.
std::string front_section(const PageView& view);
/// What the best ten trials reported, for each objective.
std::string curves_section(const PageView& view);
/// Parallel coordinates: one axis for each parameter and objective, one line for each trial.
std::string parallel_section(const PageView& view);

// Tables and bars.
/// The finalists with the spread of their trials.
std::string finalists_section(const PageView& view);
std::string importance_section(const PageView& view);
/// All trials, best first.
std::string trials_section(const PageView& view);

// The page's own look, and a script that sorts the table and finds a trial in the pictures.
std::string_view page_look();
std::string_view page_script();
/// What the page's policy lets run: the hash of page_script(), in base 64. A test compares it.
std::string_view page_script_hash();

}  // namespace millrace::sweep
