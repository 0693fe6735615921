#pragma once
// The end of a study: which configurations were trained again, and what came of it.

#include <map>
#include <string>
#include <vector>

#include "sweep/ledger.h"
#include "sweep/study_file.h"

namespace millrace::sweep {

/// Over several seeds.
struct Summary {
    double mean = 0;
    double spread = 0;  ///< standard deviation (n - 1); 0 of a single one
    std::size_t count = 0;
};
Summary summary_of(const std::vector<double>& values);
/// "0.936 +- 0.0035", without the spread of a single one.
std::string summary_text(const Summary& summary);

struct FinalistResult {
    search::Configuration configuration;
    std::vector<std::int64_t> trials;     ///< of the search, by which it was chosen
    std::vector<std::int64_t> reruns;     ///< complete ones
    std::int64_t failed = 0;              ///< reruns that diverged
    std::vector<Summary> objectives;      ///< of the reruns, else of `trials`; with the sign of the metric
    std::map<std::string, Summary> test;  ///< of the reruns; empty: the test part was not looked at
    std::string history;                  ///< history_text, where the configuration changed while it trained
};

/// By the search alone, best first: reruns decide which of them is best, not who they are.
std::vector<search::Finalist> chosen_finalists(const Ledger& ledger, std::int64_t count);

/// Best first by the means of their reruns; those of which a rerun failed stand at the end.
std::vector<FinalistResult> finalist_results(const Ledger& ledger, const StudyFile& study);

/// "trial 17: validation_accuracy 0.9712, optim.lr=0.001 optim.weight_decay=0"
std::string trial_text(const StudyFile& study, const search::Trial& trial);

}  // namespace millrace::sweep
