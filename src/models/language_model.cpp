#include "models/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/language_model.h"
#include "ops/text/text.h"

namespace millrace::models {
namespace {

using record::MetricKind::kGauge;
using record::MetricScope::kTrain;

constexpr record::MetricInfo kTextMetrics[] = {
    {"perplexity", "", kGauge, kTrain, "exp of the mean loss over all tokens of the part."},
    {"token_accuracy", "ratio", kGauge, kTrain, "Share of the tokens that were thought likeliest."},
    {"unigram_perplexity", "", kGauge, kTrain, "Perplexity of the training tokens' frequencies on the part."},
    {"unknown_share", "ratio", kGauge, kTrain, "Share of the part's tokens that stand for unknown words."},
};

/// How well a part of a text is predicted: exact over all of its tokens, beside what frequencies alone give. Batches: the tally
/// of token_cross_entropy.
class PerplexityScoring final : public Scoring {
public:
    explicit PerplexityScoring(std::optional<data::TextStatistics> text) : text_(text) {}

    void add(const std::vector<std::vector<double>>& tensors) override {
        const std::vector<double>& tally = tensors.front();
        loss_ += tally[ops::tally::loss];
        tokens_ += tally[ops::tally::tokens];
        right_ += tally[ops::tally::right];
    }

    [[nodiscard]] Scored finish() const override {
        Scored scored;
        const double tokens = std::max(tokens_, 1.0), perplexity = std::exp(loss_ / tokens), accuracy = right_ / tokens;
        scored.figures = {{"perplexity", perplexity}, {"token_accuracy", accuracy}};
        scored.summary = fmt::format("perplexity {:.2f}, {:.2f} % of the tokens right", perplexity, 100 * accuracy);
        if (!text_) return scored;
        const std::string unknown = fmt::format("{:.2f} % unknown", 100 * text_->unknown_share());
        const double alone = text_->unigram_perplexity;  // 0: there is no training part
        if (alone > 0) scored.figures.push_back({"unigram_perplexity", alone});
        scored.figures.push_back({"unknown_share", text_->unknown_share()});
        scored.summary += alone > 0 ? fmt::format(" (frequencies alone: {:.1f}; {})", alone, unknown) : " (" + unknown + ")";
        return scored;
    }

private:
    std::optional<data::TextStatistics> text_;  ///< of the part; absent where the source does not say
    double loss_ = 0, tokens_ = 0, right_ = 0;
};

}  // namespace

base::Status LanguageModel::declare(tape::Store& store) {
    MILLRACE_TRY(check(config_));
    embedding_ = nn::TokenEmbedding(store, "embed", config_.vocabulary, config_.length, config_.width);
    MILLRACE_TRY(declare_body(store));
    norm_ = nn::LayerNorm(store, "norm", config_.width);
    head_ = nn::VocabularyHead(store, "head", config_.vocabulary, config_.width);
    return base::ok();
}

data::Fields LanguageModel::wants() const {
    return {{"tokens", data::Field::Kind::integer, config_.length + 1}, {"length", data::Field::Kind::integer, 1}};
}

tape::Value LanguageModel::hidden(tape::Builder& builder, const nn::Sequences& seen) {
    return norm_.forward(builder, body(builder, embedding_.forward(builder, seen), seen));
}

Outputs LanguageModel::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    const std::vector<tensor::View> gathered = source.gather(builder, part, rows, {{"tokens"}, {"length"}});
    const nn::Sequences seen{gathered[0].columns(0, config_.length), gathered[1]},
        wanted{gathered[0].columns(1, config_.length), gathered[1]};
    const tape::Value x = hidden(builder, seen);
    nn::TokenLossOptions options;
    options.as_loss = true;
    Outputs outputs{x, {}};
    if (!builder.training()) {
        options.tally = builder.buffer(1, 1, ops::kTallyColumns, builder.stat(), tape::Role::activation, "tally");
        options.losses = builder.buffer(1, x.view.rows, 1, builder.stat(), tape::Role::activation, "losses");
        builder.keep(options.tally);
        builder.keep(options.losses);
        outputs = {{options.losses}, {options.tally}};
    }
    head_.loss(builder, x, wanted, 0, options);
    if (builder.training()) builder.backward();
    return outputs;
}

void LanguageModel::append_loss_totals(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const {
    const std::vector<tensor::View> gathered = source.gather(builder, data::Part::train, rows, {{"tokens"}, {"length"}});
    head_.total(builder, {gathered[0].columns(1, config_.length), gathered[1]});
}

std::unique_ptr<Scoring> LanguageModel::scoring(data::Part part, int /*member*/) const {
    std::optional<data::TextStatistics> text;
    if (config_.statistics.size() > data::index_of(part)) text = config_.statistics[data::index_of(part)];
    return std::make_unique<PerplexityScoring>(text);
}

tape::Value LanguageModel::build_step(tape::Builder& builder, const nn::Sequences& token, const tensor::View& position_row) {
    const tape::Value x = body(builder, embedding_.forward(builder, token, {}, position_row), token);
    return head_.logits(builder, norm_.forward(builder, x));
}

std::vector<Attachment> LanguageModel::attachments() const {
    if (config_.tokenizer == nullptr) return {};
    return {{kTokenizer, config_.tokenizer->bytes()}};
}

void take_fields(LanguageConfig& config, const data::Fields& fields) {
    if (const data::Field* tokens = data::find_field(fields, "tokens")) {
        config.vocabulary = tokens->limit;
        config.length = tokens->width - 1;
        config.tokenizer = tokens->tokenizer;
        config.statistics = tokens->statistics;
    }
}

void language_keys(Keys& keys, LanguageConfig& c) {
    keys.add("width", c.width, "width of a position").between(4, 1 << 14);
    keys.add("heads", c.heads, "heads of the attention; they divide the width").between(1, 1 << 10);
    keys.add("inner", c.inner, "width of the hidden linear layer").between(4, 1 << 16);
    keys.add("dropout", c.dropout, "of what attention and linear layers add").at_least(0).below(1);
}

base::Status check(const LanguageConfig& config) {
    if (config.width % config.heads != 0 || config.width % 4 != 0 || config.inner % 4 != 0)
        return base::Error{fmt::format(
            "model.width = {} and model.inner = {} must be multiples of 4, and model.heads = {} must divide the width",
            config.width, config.inner, config.heads)};
    if (config.vocabulary < 1 || config.length < 1)
        return base::Error{"a language model needs a vocabulary and windows of at least one token"};
    return base::ok();
}

Family language_family(std::string name) {
    Family family;
    family.name = std::move(name);
    family.data = data::DataKind::text;
    family.usual = {{"tokens", data::Field::Kind::integer, 65, 10000}, {"length", data::Field::Kind::integer, 1, 65}};
    family.set_general_defaults = [](const std::string&, base::Schema& keys) {
        keys.at("optim.name").initial = std::string("adamw");
        keys.at("optim.weight_decay").initial = std::vector<double>{0.01};
        keys.at("optim.clip_norm").initial = std::vector<double>{1.0};
        keys.at("train.batch").initial = std::int64_t{256};
    };
    family.measures = {"validation_loss"};
    family.metrics = kTextMetrics;
    family.stored_data = stored_language;
    family.go_on = go_on;
    return family;
}

}  // namespace millrace::models
