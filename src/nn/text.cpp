#include "nn/text.h"

#include "nn/slot_target.h"
#include "ops/text/text.h"

namespace millrace::nn {

TokenEmbedding::TokenEmbedding(tape::Store& store, std::string name, std::int32_t vocabulary, std::int32_t places,
                               std::int32_t cols, tape::Init init)
    : name_(std::move(name)), places_(places), cols_(cols) {
    tokens_ = store.add_matrix({name_ + ".tokens.weight"}, vocabulary, cols, init);
    place_ = store.add_matrix({name_ + ".places.weight"}, places, cols, init);
}

tape::Value TokenEmbedding::forward(tape::Builder& builder, const Sentences& sentences, const tape::Value& prefix) const {
    MILLRACE_ASSERT(sentences.places() == places_, name_);
    MILLRACE_ASSERT(prefix.view.present() == (sentences.prefix > 0), name_);
    const tape::Value y = builder.activation(sentences.rows(), cols_, name_, builder.training());
    const tape::Store& store = builder.store();
    builder.append(record_of(
        &ops::token_embed::def, ops::TokenParams{sentences.prefix}, name_,
        {store.parameter(tokens_), store.parameter(place_), prefix, sentences.ids, sentences.lengths, store.state(), y}));
    if (builder.training())
        builder.on_backward([layer = *this, &builder, sentences, prefix, y] { layer.backward(builder, sentences, prefix, y); });
    return y;
}

void TokenEmbedding::backward(tape::Builder& builder, const Sentences& sentences, const tape::Value& prefix,
                              const tape::Value& y) const {
    const tensor::View dy = builder.gradient(y);
    if (!dy.present()) return;
    const Slot dtokens = builder.parameter_gradient(tokens_), dplace = builder.parameter_gradient(place_);
    const Slot dbefore = prefix.view.present() && prefix.needs_gradient ? builder.gradient_target(prefix) : Slot{};
    builder.append(record_of(&ops::token_embed_backward::def, ops::TokenParams{sentences.prefix}, name_,
                             {dy, sentences.ids, sentences.lengths, dtokens, dplace, dbefore}));
}

tape::Value masked_mean(tape::Builder& builder, const tape::Value& x, const Sentences& sentences, const std::string& name) {
    MILLRACE_ASSERT(x.view.rows == sentences.rows(), name);
    const tape::Value y = builder.activation(sentences.count(), x.view.cols, name, builder.training() && x.needs_gradient);
    const ops::TokenParams params{sentences.prefix};
    builder.append(record_of(&ops::masked_mean::def, params, name, {x, sentences.lengths, y}));
    if (!y.needs_gradient) return y;

    builder.on_backward([&builder, x, y, sentences, name, params] {
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        builder.append(
            record_of(&ops::masked_mean_backward::def, params, name, {dy, sentences.lengths, builder.gradient_target(x)}));
    });
    return y;
}

void token_cross_entropy(tape::Builder& builder, const tape::Value& logits, const Sentences& sentences, std::int32_t first,
                         const TokenLossOptions& options) {
    MILLRACE_ASSERT(logits.view.rows == sentences.rows(), "token_cross_entropy");
    const ops::TokenLossParams params{options.weight * builder.share(), first, options.as_loss};
    const Slot dlogits = logits.needs_gradient ? only_loss_of(builder, logits) : Slot{};
    const Slot tally = options.tally.present() ? tape::Builder::Target{options.tally, options.keep_tally} : Slot{};
    builder.append(record_of(&ops::token_cross_entropy::def, params, options.name,
                             {logits, sentences.ids, sentences.lengths, builder.store().state(), dlogits, tally}));
}

void token_choose(tape::Builder& builder, const tape::Value& logits, const Sentences& sentences, std::int32_t first,
                  std::int32_t end, const std::string& name) {
    MILLRACE_ASSERT(!builder.training() && logits.view.rows == sentences.rows(), "token_choose");
    builder.append(
        record_of(&ops::token_choose::def, ops::TokenChooseParams{first, end}, name, {logits, sentences.ids, sentences.lengths}));
}

}  // namespace millrace::nn
