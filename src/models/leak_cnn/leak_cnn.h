#pragma once
// Finds a class of sounds in short windows of recordings: three convolutions along the frequency bands, a hidden layer, a head
// for the classes and one that only says whether the class looked for is there. Many windows of a recording vote (voting.h).
//
// The kernels are 3 x 3 in checkpoints, as the original has them. A window has one frame of time, so their outer columns meet
// padding alone and are not computed.
/// The weight of each class in a member's loss. Balanced: balanced_weights(). Weighted: these over their mean, times `boost` for
/// the positive one. 1 for classes that do not occur.

#include <optional>
#include <string>
#include <vector>

#include "data/fields.h"
#include "io/checkpoint.h"
#include "models/capabilities.h"
#include "models/model.h"
#include "nn/conv.h"
#include "nn/dense.h"

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

enum class LossKind : std::uint8_t { plain, weighted, focal };

struct LeakCnnConfig {
    std::int32_t bands = 64, hidden = 256;
    std::vector<std::int32_t> channels{32, 64, 128};
    float dropout = 0.25f;
    LossKind loss = LossKind::weighted;
    bool balanced = false;  ///< plain: with train.class_weights
    // One value, or one of each member.
    std::vector<double> boost{1};        ///< weighted: factor on the weight of the positive class
    std::vector<double> gamma{2};        ///< focal
    std::vector<double> alpha{0.75};     ///< focal: weight of the positive class; the others share what is left of 1
    std::vector<double> auxiliary{0.5};  ///< weight of the second head's loss; 0: it has no part in training and voting
    data::Classes classes{{"NOLEAK", "LEAK"}, {}, 1, {40, 2}};
    std::shared_ptr<const data::Scaling> scaling = {};
};

class LeakCnn final : public Model {
public:
    explicit LeakCnn(LeakCnnConfig config) : config_(std::move(config)) {}

    base::Status declare(tape::Store& store) override;
    [[nodiscard]] data::Fields wants() const override;  ///< features and label
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    void append_loss_totals(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const override;
    [[nodiscard]] std::unique_ptr<Scoring> scoring(data::Part part, int member) const override;
    [[nodiscard]] std::vector<Attachment> attachments() const override;  ///< classes and scaling
    [[nodiscard]] std::string description() const override;
    /// How a member's windows vote. The threshold is stored, except on validation, which chooses it.
    [[nodiscard]] VotingRules rules(data::Part part, int member) const;

private:
    /// Focal losses and balanced ones are means over rows, the others over the weights of their classes.
    [[nodiscard]] bool by_rows() const { return config_.loss == LossKind::focal || config_.balanced; }

    LeakCnnConfig config_;
    tape::Store* store_ = nullptr;
    std::vector<nn::Conv> convs_;
    nn::Dense hidden_, classes_, leak_;
    // Values of the member: fixed parameters, so that every member has its own and checkpoints keep them.
    tape::ParameterId weights_ = tape::kNoParameter, gamma_ = tape::kNoParameter;  ///< of the classes' loss
    tape::ParameterId auxiliary_ = tape::kNoParameter, threshold_ = tape::kNoParameter;
};

/// The weight of each class in a member's loss. Balanced: balanced_weights(). Weighted: these over their mean, times `boost` for
/// the positive one. 1 for classes that do not occur.
std::vector<double> class_weights(const LeakCnnConfig& config, std::size_t member);

inline constexpr const char* kRecordingData = "recording_data";  ///< the attachment, JSON

/// What a checkpoint says about the recordings: which classes there are, how many windows belong together, how features are
/// scaled.
struct RecordingData {
    data::Classes classes;  ///< without counts
    data::Scaling scaling;
};

std::string encode(const RecordingData& data);
/// `place` names the text in errors.
base::Result<RecordingData> decode(const std::string& text, const std::string& place);
/// Of a checkpoint's first member.
base::Result<RecordingData> stored_recordings(const io::LoadedCheckpoint& checkpoint);

/// From the keys of a recipe.
base::Result<LeakCnnConfig> leak_cnn_config(const base::Recipe& recipe, const data::Fields& fields);

/// One row for each WAV and FLAC file at any depth below `request.in`, by name; a file that cannot be read has its error as note.
/// Columns are named after the class that is looked for: "is_leak".
base::Result<ClassifyReport> classify_sounds(const ClassifyRequest& request);

}  // namespace millrace::models
