#pragma once
// sweep.html: a study in one file that needs no network. History, parallel coordinates, importance, Pareto front, learning
// curves, finalists and a table of all trials. Everything is in the file as HTML and SVG; the script sorts, points and selects.

#include <string>
#include <vector>

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

}  // namespace millrace::sweep
