#include "nn/text.h"

#include <utility>

#include "nn/slot_target.h"
#include "ops/text/text.h"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::nn {

TokenEmbedding::TokenEmbedding(tape::Store& store, std::string name, std::int32_t vocabulary, std::int32_t positions,
                               std::int32_t cols, const tape::Init& init)
    : name_(std::move(name)), position_count_(positions), cols_(cols) {
    tokens_ = store.add_table({name_ + ".tokens.weight"}, vocabulary, cols, init);
    positions_ = store.add_table({name_ + ".position.weight"}, positions, cols, init);
}

tape::Value TokenEmbedding::forward(tape::Builder& builder, const Sequences& sequences, const tape::Value& prefix,
                                    const tensor::View& position) const {
    MILLRACE_ASSERT(position.present() ? !builder.training() && sequences.positions() == 1 && position.cols == cols_
                                       : sequences.positions() == position_count_,
                    name_);
    MILLRACE_ASSERT(prefix.view.present() == (sequences.prefix > 0), name_);
    const tape::Value y = builder.activation(sequences.rows(), cols_, name_, builder.training());
    const tape::Store& store = builder.store();
    const ops::TokenParams params{sequences.prefix};
    builder.append(record_of(&ops::token_embed::kDef, params, name_,
                             {store.parameter(tokens_), position.present() ? position : store.parameter(positions_), prefix,
                              sequences.ids, sequences.lengths, store.state(), y}));
    builder.on_gradient(y, [layer = *this, &builder, sequences, prefix, params](const tensor::View& dy) {
        const Slot dtokens = builder.parameter_gradient(layer.tokens_), dposition = builder.parameter_gradient(layer.positions_);
        const Slot dbefore = prefix.view.present() && prefix.needs_gradient ? builder.gradient_target(prefix) : Slot{};
        builder.append(record_of(&ops::token_embed_backward::kDef, params, layer.name_,
                                 {dy, sequences.ids, sequences.lengths, dtokens, dposition, dbefore}));
    });
    return y;
}

tape::Value masked_mean(tape::Builder& builder, const tape::Value& x, const Sequences& sequences, const std::string& name) {
    MILLRACE_ASSERT(x.view.rows == sequences.rows(), name);
    const tape::Value y = builder.activation(sequences.count(), x.view.cols, name, builder.training() && x.needs_gradient);
    const ops::TokenParams params{sequences.prefix};
    builder.append(record_of(&ops::masked_mean::kDef, params, name, {x, sequences.lengths, y}));
    builder.on_gradient(y, [&builder, x, sequences, name, params](const tensor::View& dy) {
        builder.append(
            record_of(&ops::masked_mean_backward::kDef, params, name, {dy, sequences.lengths, builder.gradient_target(x)}));
    });
    return y;
}

void token_cross_entropy(tape::Builder& builder, const tape::Value& logits, const Sequences& sequences, std::int32_t first,
                         const TokenLossOptions& options) {
    MILLRACE_ASSERT(logits.view.rows == sequences.rows(), "token_cross_entropy");
    const Mean mean = step_mean(builder, options.name, "a mean over tokens");
    const ops::TokenLossParams params{options.weight * mean.scale, first, options.as_loss};
    const Slot dlogits = logits.needs_gradient ? only_loss_of(builder, logits) : Slot{};
    builder.append(
        record_of(&ops::token_cross_entropy::kDef, params, options.name,
                  {logits, sequences.ids, sequences.lengths, builder.store().state(), dlogits, options.tally, mean.total}));
}

void total_tokens(tape::Builder& builder, const Sequences& sequences, const std::string& loss) {
    append_loss_total(builder, loss, {sequences.tokens()}, sequences.lengths);
}

VocabularyHead::VocabularyHead(tape::Store& store, std::string name, std::int32_t vocabulary, std::int32_t cols,
                               std::optional<tape::Init> weight, std::optional<tape::Init> bias)
    : name_(std::move(name)) {
    DenseOptions options = linear(cols, vocabulary, ops::Activation::none, std::move(weight));
    options.bias_init = std::move(bias).value_or(*linear(cols, vocabulary).weight_init);
    linear_ = Dense(store, {name_}, {}, options);
}

void VocabularyHead::loss(tape::Builder& builder, const tape::Value& x, const Sequences& targets, std::int32_t first,
                          const TokenLossOptions& options) const {
    const std::int32_t rows = x.view.rows, positions = targets.count() > 0 ? rows / targets.count() : 0;
    MILLRACE_ASSERT(rows == positions * targets.count() && (rows == 0 || first + targets.tokens() <= positions), name_);
    const tape::Store& store = builder.store();
    tensor::View losses = options.losses;
    if (!losses.present()) losses = builder.buffer(1, rows, 1, builder.stat(), tape::Role::scratch, name_ + ".losses");
    const Mean mean = step_mean(builder, name_, "a mean over tokens");
    Slot dx, dweight, dbias;
    if (builder.training()) {
        if (x.needs_gradient) dx = builder.gradient_target(x);
        dweight = builder.parameter_gradient(linear_.weight());
        dbias = builder.parameter_gradient(linear_.bias());
    }
    builder.append(record_of(&ops::vocabulary_loss::kDef,
                             ops::TokenLossParams{options.weight * mean.scale, first, options.as_loss}, name_,
                             {x, store.weight(linear_.weight()), store.parameter(linear_.bias()), targets.ids, targets.lengths,
                              store.state(), losses, dx, dweight, dbias, options.tally, mean.total}));
}

void token_choose(tape::Builder& builder, const tape::Value& logits, const Sequences& sequences, std::int32_t first,
                  std::int32_t end, const std::string& name) {
    MILLRACE_ASSERT(!builder.training() && logits.view.rows == sequences.rows(), "token_choose");
    builder.append(record_of(&ops::token_choose::kDef, ops::TokenChooseParams{first, end}, name,
                             {logits, sequences.ids, sequences.lengths}));
}

}  // namespace millrace::nn
