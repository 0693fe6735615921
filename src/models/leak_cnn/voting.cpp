#include "models/leak_cnn/leak_cnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace::models {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
}

}  // namespace

double window_probability(const double* logits, std::size_t classes, double leak, const VotingRules& rules) {
    const double largest = *std::max_element(logits, logits + classes);
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - largest);
    const double first = std::exp(logits[static_cast<std::size_t>(rules.positive)] - largest) / sum;
    return rules.second_head ? (first + 1 / (1 + std::exp(-leak))) / 2 : first;
}

std::vector<double> votes_of(const std::vector<double>& windows, const VotingRules& rules) {
    const auto each = static_cast<std::size_t>(rules.windows_per_vote);
    std::vector<double> votes;
    for (std::size_t i = 0; i + each <= windows.size(); i += each) {
        double sum = 0;
        for (std::size_t j = i; j < i + each; ++j) sum += windows[j];
        votes.push_back(sum / static_cast<double>(each));
    }
    return votes;
}

bool decides(const double* votes, std::size_t count, double threshold) {
    const auto above = std::count_if(votes, votes + count, [&](double vote) { return vote >= threshold; });
    return 2 * static_cast<std::size_t>(above) >= count;
}

double Decisions::precision() const { return ratio(hits, hits + false_alarms); }
double Decisions::recall() const { return ratio(hits, hits + misses); }
double Decisions::f1() const { return 2 * precision() * recall() / std::max(precision() + recall(), 1e-12); }
double Decisions::accuracy() const { return ratio(hits + rejections, hits + rejections + false_alarms + misses); }
double Decisions::mcc() const {
    const auto a = static_cast<double>(hits), b = static_cast<double>(false_alarms), c = static_cast<double>(misses),
               d = static_cast<double>(rejections);
    const double below = (a + b) * (a + c) * (d + b) * (d + c);
    return below > 0 ? (a * d - b * c) / std::sqrt(below) : 0;
}
void Decisions::add(bool decided, bool present) {
    ++(decided ? (present ? hits : false_alarms) : (present ? misses : rejections));
}

Decisions judge(const std::vector<double>& votes, const std::vector<bool>& present, std::size_t per_recording, double threshold) {
    Decisions all;
    for (std::size_t r = 0; r < present.size(); ++r)
        all.add(decides(votes.data() + r * per_recording, per_recording, threshold), present[r]);
    return all;
}

double best_threshold(const std::vector<double>& votes, const std::vector<bool>& present, std::size_t per_recording) {
    double best = 0, best_f1 = -1;
    for (int i = 2; i <= 18; ++i) {
        const double threshold = i / 20.0, f1 = judge(votes, present, per_recording, threshold).f1();
        if (f1 > best_f1) {
            best = threshold;
            best_f1 = f1;
        }
    }
    return best;
}

void VotingScoring::add(const std::vector<std::vector<double>>& tensors) {
    const std::vector<double>&logits = tensors[0], &leak = tensors[1], &labels = tensors[2];
    const std::size_t rows = labels.size(), classes = rows > 0 ? logits.size() / rows : 1;
    const auto per_recording = static_cast<std::size_t>(rules_.votes) * static_cast<std::size_t>(rules_.windows_per_vote);
    for (std::size_t r = 0; r < rows; ++r, ++rows_) {
        const double* l = logits.data() + r * classes;
        const bool present = static_cast<std::int32_t>(labels[r]) == rules_.positive;
        windows_.push_back(window_probability(l, classes, leak[r], rules_));
        segments_.add(std::max_element(l, l + classes) - l == rules_.positive, present);
        if (rows_ % per_recording == 0) present_.push_back(present);
    }
}

Scored VotingScoring::finish() const {
    const std::vector<double> votes = votes_of(windows_, rules_);
    const auto each = static_cast<std::size_t>(rules_.votes);
    const double threshold = rules_.threshold.value_or(best_threshold(votes, present_, each));
    const Decisions files = judge(votes, present_, each, threshold);
    Decisions always;
    for (const bool present : present_) always.add(true, present);
    Scored scored;
    scored.figures = {{"segment_f1", segments_.f1()},        {"file_f1", files.f1()},         {"file_accuracy", files.accuracy()},
                      {"file_precision", files.precision()}, {"file_recall", files.recall()}, {"file_mcc", files.mcc()},
                      {"file_threshold", threshold},         {"file_always_f1", always.f1()}};
    if (!rules_.threshold) scored.chosen = {{"threshold", threshold}};
    const std::string& name = rules_.names[static_cast<std::size_t>(rules_.positive)];
    if (!(files.f1() > always.f1()) || !(files.mcc() > 0))
        scored.refused = fmt::format("their F1 of {:.4f} on whole recordings does not beat always answering {} ({:.4f})",
                                     files.f1(), name, always.f1());
    scored.summary = fmt::format("file F1 {:.4f} MCC {:.3f} (always {}: F1 {:.4f})", files.f1(), files.mcc(), name, always.f1());
    scored.notes.push_back(
        fmt::format("{} recordings: accuracy {:.4f} precision {:.4f} recall {:.4f}, {} of {} found, {} false alarms, at a "
                    "threshold of {:.2f} {}; "
                    "segments: F1 {:.4f}",
                    present_.size(), files.accuracy(), files.precision(), files.recall(), files.hits, files.hits + files.misses,
                    files.false_alarms, threshold, rules_.threshold ? "from validation" : "chosen here", segments_.f1()));
    return scored;
}

}  // namespace millrace::models
