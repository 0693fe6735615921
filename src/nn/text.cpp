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
    namespace slot = ops::token_embed;
    MILLRACE_ASSERT(sentences.places() == places_, name_);
    MILLRACE_ASSERT(prefix.view.present() == (sentences.prefix > 0), name_);
    const tape::Value y = builder.activation(sentences.rows(), cols_, name_, builder.training());
    ops::Record record{&ops::token_embed::def, ops::TokenParams{sentences.prefix}, {}, 0, name_};
    record.slots[slot::table] = builder.store().parameter(tokens_);
    record.slots[slot::place] = builder.store().parameter(place_);
    record.slots[slot::before] = prefix.view;
    record.slots[slot::ids] = sentences.ids;
    record.slots[slot::lengths] = sentences.lengths;
    record.slots[slot::state] = builder.store().state();
    record.slots[slot::y] = y.view;
    builder.append(std::move(record));
    if (builder.training())
        builder.on_backward([layer = *this, &builder, sentences, prefix, y] { layer.backward(builder, sentences, prefix, y); });
    return y;
}

void TokenEmbedding::backward(tape::Builder& builder, const Sentences& sentences, const tape::Value& prefix,
                              const tape::Value& y) const {
    namespace slot = ops::token_embed_backward;
    const tensor::View dy = builder.gradient(y);
    if (!dy.present()) return;
    ops::Record record{&ops::token_embed_backward::def, ops::TokenParams{sentences.prefix}, {}, 0, name_};
    record.slots[slot::dy] = dy;
    record.slots[slot::ids] = sentences.ids;
    record.slots[slot::lengths] = sentences.lengths;
    write_to(record, slot::dtable, builder.parameter_gradient(tokens_));
    write_to(record, slot::dplace, builder.parameter_gradient(place_));
    if (prefix.view.present() && prefix.needs_gradient) write_to(record, slot::dbefore, builder.gradient_target(prefix));
    builder.append(std::move(record));
}

tape::Value masked_mean(tape::Builder& builder, const tape::Value& x, const Sentences& sentences, const std::string& name) {
    namespace fore = ops::masked_mean;
    MILLRACE_ASSERT(x.view.rows == sentences.rows(), name);
    const tape::Value y = builder.activation(sentences.count(), x.view.cols, name, builder.training() && x.needs_gradient);
    ops::Record record{&ops::masked_mean::def, ops::TokenParams{sentences.prefix}, {}, 0, name};
    record.slots[fore::x] = x.view;
    record.slots[fore::lengths] = sentences.lengths;
    record.slots[fore::y] = y.view;
    builder.append(std::move(record));
    if (!y.needs_gradient) return y;

    builder.on_backward([&builder, x, y, sentences, name] {
        namespace back = ops::masked_mean_backward;
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        ops::Record rule{&ops::masked_mean_backward::def, ops::TokenParams{sentences.prefix}, {}, 0, name};
        rule.slots[back::dy] = dy;
        rule.slots[back::lengths] = sentences.lengths;
        write_to(rule, back::dx, builder.gradient_target(x));
        builder.append(std::move(rule));
    });
    return y;
}

void token_cross_entropy(tape::Builder& builder, const tape::Value& logits, const Sentences& sentences, std::int32_t first,
                         const TokenLossOptions& options) {
    namespace slot = ops::token_cross_entropy;
    MILLRACE_ASSERT(logits.view.rows == sentences.rows(), "token_cross_entropy");
    ops::Record record{&ops::token_cross_entropy::def,
                       ops::TokenLossParams{options.weight * builder.share(), first, options.as_loss},
                       {},
                       0,
                       options.name};
    record.slots[slot::logits] = logits.view;
    record.slots[slot::ids] = sentences.ids;
    record.slots[slot::lengths] = sentences.lengths;
    record.slots[slot::state] = builder.store().state();
    if (options.tally.present()) write_to(record, slot::tally, {options.tally, options.keep_tally});
    if (builder.training() && logits.needs_gradient) {
        const tape::Builder::Target target = builder.gradient_target(logits);
        MILLRACE_ASSERT(!target.accumulate, "the logits have a second loss");
        record.slots[slot::dlogits] = target.view;
    }
    builder.append(std::move(record));
}

void token_choose(tape::Builder& builder, const tape::Value& logits, const Sentences& sentences, std::int32_t first,
                  std::int32_t end, const std::string& name) {
    namespace slot = ops::token_choose;
    MILLRACE_ASSERT(!builder.training() && logits.view.rows == sentences.rows(), "token_choose");
    ops::Record record{&ops::token_choose::def, ops::TokenChooseParams{first, end}, {}, 0, name};
    record.slots[slot::logits] = logits.view;
    record.slots[slot::ids] = sentences.ids;
    record.slots[slot::lengths] = sentences.lengths;
    builder.append(std::move(record));
}

}  // namespace millrace::nn
