#include "models/leak_cnn/leak_cnn.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/leak_cnn/leak_cnn.h"
#include "models/leak_cnn/ops/sounds.h"
#include "models/task.h"
#include "nn/losses.h"
#include "nn/slot_target.h"

namespace millrace::models {

namespace {

constexpr const char* kWeighted = "weighted_cross_entropy";

double of_member(const std::vector<double>& values, std::size_t member) { return values[std::min(member, values.size() - 1)]; }

/// One fixed number of each member; the last is that of all that follow.
tape::ParameterId declare_value(tape::Store& store, const std::string& name, const std::vector<double>& values) {
    std::vector<std::vector<double>> each;
    each.reserve(values.size());
    for (const double value : values) each.push_back({value});
    return store.add_vector({name}, 1, tape::Init::blocks(std::move(each)), tape::kSettings);
}

}  // namespace

std::vector<double> class_weights(const LeakCnnConfig& config, std::size_t member) {
    const data::Classes& classes = config.classes;
    const std::size_t count = classes.names.size(), positive = static_cast<std::size_t>(classes.positive);
    std::vector<double> weights(count, 1);
    if (config.loss == LossKind::focal) {
        const double alpha = of_member(config.alpha, member);
        std::fill(weights.begin(), weights.end(), (1 - alpha) / static_cast<double>(std::max<std::size_t>(count - 1, 1)));
        weights[positive] = alpha;
    }
    const bool weighted = config.loss == LossKind::weighted;
    if ((!weighted && !config.balanced) || classes.counts.size() != count) return weights;
    weights = balanced_weights(classes.counts);
    if (!weighted) return weights;
    double sum = 0, present = 0;
    for (std::size_t c = 0; c < count; ++c) {
        if (classes.counts[c] == 0) continue;
        sum += weights[c];
        present += 1;
    }
    for (std::size_t c = 0; c < count; ++c)
        if (classes.counts[c] > 0) weights[c] *= present / sum;
    weights[positive] *= of_member(config.boost, member);
    return weights;
}

base::Status LeakCnn::declare(tape::Store& store) {
    store_ = &store;
    convs_.clear();
    std::int32_t bands = config_.bands, in = 1;
    for (std::size_t i = 0; i < config_.channels.size(); ++i) {
        nn::ConvOptions options;
        options.height = bands;
        options.in = in;
        options.out = in = config_.channels[i];
        options.pool_h = i == 0 ? 1 : 2;
        if (bands < options.pool_h)
            return base::Error{
                fmt::format("windows of {} bands are pooled away by {} convolutions; more bands or fewer "
                            "model.channels would be right",
                            config_.bands, config_.channels.size())};
        options.channels_first = i + 1 == config_.channels.size();
        if (options.channels_first) options.dropout = config_.dropout;
        convs_.emplace_back(store, fmt::format("conv{}", i + 1), options);
        bands /= options.pool_h;
    }
    const auto classes = static_cast<std::int32_t>(config_.classes.names.size());
    hidden_ = nn::Dense(store, {"fc"}, {}, {.in = bands * in, .out = config_.hidden, .activation = ops::Activation::relu});
    classes_ = nn::Dense(store, {"classes"}, {}, {.in = config_.hidden, .out = classes});
    leak_ = nn::Dense(store, {"leak"}, {}, {.in = config_.hidden, .out = 1});
    std::vector<std::vector<double>> weights;
    for (std::size_t k = 0; k < static_cast<std::size_t>(store.members()); ++k) weights.push_back(class_weights(config_, k));
    weights_ = store.add_vector({"loss.weights"}, classes, tape::Init::blocks(std::move(weights)), tape::kSettings);
    gamma_ = declare_value(store, "loss.gamma", config_.loss == LossKind::focal ? config_.gamma : std::vector<double>{0});
    auxiliary_ = declare_value(store, "loss.auxiliary", config_.auxiliary);
    threshold_ = declare_value(store, "threshold", {0.5});
    return base::ok();
}

data::Fields LeakCnn::wants() const {
    return {{"features", data::Field::Kind::real, config_.bands}, {"label", data::Field::Kind::integer, 1}};
}

Outputs LeakCnn::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    tape::Value value = builder.activation(rows, config_.bands, "x", false);
    const tensor::View labels = source.gather(builder, part, rows, {{"features", value.view}, {"label"}})[1];
    for (const nn::Conv& conv : convs_) value = conv.forward(builder, value);
    value = hidden_.forward(builder, value);
    const tape::Value logits = classes_.forward(builder, value), leak = leak_.forward(builder, value);
    if (!builder.training()) {
        const tensor::View predicted = nn::cross_entropy(builder, logits, labels);
        Outputs outputs{logits, {logits.view, leak.view, labels}, labels, predicted};
        for (const tensor::View& view : outputs.kept) builder.keep(view);
        return outputs;
    }
    const tape::Store& store = builder.store();
    const nn::Mean mean = by_rows() ? nn::Mean{builder.share(), {}} : nn::step_mean(builder, kWeighted, "a mean over weights");
    builder.append(tape::record_of(&ops::weighted_cross_entropy::kDef, ops::WeightedLossParams{mean.scale, by_rows()}, kWeighted,
                                   {logits, labels, store.parameter(weights_), store.parameter(gamma_), store.state(),
                                    nn::only_loss_of(builder, logits), mean.total}));
    builder.append(tape::record_of(&ops::binary_cross_entropy::kDef,
                                   ops::BinaryLossParams{builder.share(), config_.classes.positive}, "binary_cross_entropy",
                                   {leak, labels, store.parameter(auxiliary_), store.state(), nn::only_loss_of(builder, leak)}));
    builder.backward();
    return {logits, {}};
}

void LeakCnn::append_loss_totals(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const {
    const tensor::View labels = source.gather(builder, data::Part::train, rows, {{"label"}})[0];
    if (!by_rows()) nn::append_loss_total(builder, kWeighted, {}, labels, builder.store().parameter(weights_));
}

VotingRules LeakCnn::rules(data::Part part, int member) const {
    VotingRules rules;
    rules.positive = config_.classes.positive;
    rules.names = config_.classes.names;
    rules.votes = config_.classes.together.empty() ? 1 : config_.classes.together.front();
    rules.windows_per_vote = 1;
    for (std::size_t i = 1; i < config_.classes.together.size(); ++i) rules.windows_per_vote *= config_.classes.together[i];
    rules.second_head = store_->read_parameter(auxiliary_, 0, member).front() > 0;  // a search changes it while members train
    if (part != data::Part::validation)
        rules.threshold = static_cast<double>(store_->read_parameter(threshold_, 0, member).front());
    return rules;
}

std::unique_ptr<Scoring> LeakCnn::scoring(data::Part part, int member) const {
    return std::make_unique<VotingScoring>(rules(part, member));
}

std::vector<Attachment> LeakCnn::attachments() const {
    if (config_.scaling == nullptr) return {};
    return {{kRecordingData, encode({config_.classes, *config_.scaling})}};
}

std::string LeakCnn::description() const {
    return fmt::format("{} bands, convolutions of {} channels, hidden layer of {}; {} looked for among {}", config_.bands,
                       fmt::join(config_.channels, ", "), config_.hidden,
                       config_.classes.names[static_cast<std::size_t>(config_.classes.positive)],
                       fmt::join(config_.classes.names, ", "));
}

}  // namespace millrace::models
