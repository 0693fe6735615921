#pragma once
// Decisions about recordings from the probabilities of their windows.

#include <optional>
#include <string>
#include <vector>

#include "models/scoring.h"

namespace millrace::models {

struct VotingRules {
    std::int32_t positive = 1;
    std::vector<std::string> names;
    std::int32_t votes = 40, windows_per_vote = 2;  ///< of a recording
    bool second_head = true;                        ///< probability = mean of both heads
    std::optional<double> threshold;                ///< of a vote; absent: chosen by what follows
};

/// The probability of the positive class in a window.
double window_probability(const double* logits, std::size_t classes, double leak, const VotingRules& rules);

/// The mean of each vote's windows.
std::vector<double> votes_of(const std::vector<double>& windows, const VotingRules& rules);
/// At least half of the votes reach the threshold.
bool decides(const double* votes, std::size_t count, double threshold);

/// Counts of decisions against what was there.
struct Decisions {
    std::int64_t hits = 0, false_alarms = 0, misses = 0, rejections = 0;

    [[nodiscard]] double precision() const;  ///< denominators are 1 at least
    [[nodiscard]] double recall() const;
    [[nodiscard]] double f1() const;   ///< 0 where precision and recall are
    [[nodiscard]] double mcc() const;  ///< 0 where a row or column of the table is empty
    [[nodiscard]] double accuracy() const;
    void add(bool decided, bool present);
};

/// Decisions about all recordings; `votes` holds `rules.votes` of each.
Decisions judge(const std::vector<double>& votes, const std::vector<bool>& present, std::size_t per_recording, double threshold);
/// Of 0.10, 0.15, ... 0.90 the one with the largest F1; the lowest on ties.
double best_threshold(const std::vector<double>& votes, const std::vector<bool>& present, std::size_t per_recording);

/// A pass over a part whose recordings lie one after the other. Batches: logits, second head, labels.
class VotingScoring final : public Scoring {
public:
    explicit VotingScoring(VotingRules rules) : rules_(std::move(rules)) {}
    void add(const std::vector<std::vector<double>>& tensors) override;
    [[nodiscard]] Scored finish() const override;

private:
    VotingRules rules_;
    std::vector<double> windows_;  ///< probabilities
    std::vector<bool> present_;    ///< of each recording
    Decisions segments_;           ///< by the larger logit
    std::size_t rows_ = 0;
};

}  // namespace millrace::models
