#include "nn/embedding.h"

#include "nn/slot_target.h"

namespace millrace::nn {

Embedding::Embedding(tape::Store& store, std::string name, std::int32_t vocabulary, std::int32_t cols, tape::Init init)
    : name_(std::move(name)), cols_(cols) {
    table_ = store.add_matrix({name_ + ".weight"}, vocabulary, cols, init);
}

tape::Value Embedding::forward(tape::Builder& builder, const tensor::View& index) const {
    namespace fore = ops::embedding_forward;
    MILLRACE_ASSERT(index.dtype == tensor::DType::i32 && index.cols == 1 && index.g == 1, name_);
    const tape::Value y = builder.activation(index.rows, cols_, name_, builder.training());
    ops::Record record{ops::OpId::embedding_forward, ops::EmbeddingParams{}, {}, 0, name_};
    record.slots[fore::table] = builder.store().parameter(table_);
    record.slots[fore::index] = index;
    record.slots[fore::state] = builder.store().state();
    record.slots[fore::y] = y.view;
    builder.append(std::move(record));
    if (!builder.training()) return y;

    builder.on_backward([layer = *this, &builder, index, y] {
        namespace back = ops::embedding_backward;
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        ops::Record rule{ops::OpId::embedding_backward, ops::EmbeddingParams{}, {}, 0, layer.name_};
        rule.slots[back::dy] = dy;
        rule.slots[back::index] = index;
        write_to(rule, back::dtable, builder.parameter_gradient(layer.table_));
        builder.append(std::move(rule));
    });
    return y;
}

}  // namespace millrace::nn
