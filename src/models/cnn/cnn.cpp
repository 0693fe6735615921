#include "models/cnn/cnn.h"

#include <fmt/format.h>

#include "nn/losses.h"

namespace millrace::models {

base::Status Cnn::declare(tape::Store& store) {
    convs_.clear();
    std::int32_t side = config_.side, in = 1;
    for (std::size_t i = 0; i < config_.channels.size(); ++i) {
        if (side < config_.pool)
            return base::Error{fmt::format("model.channels has {} layers, but images of {} x {} are pooled away after {}",
                                           config_.channels.size(), config_.side, config_.side, i)};
        nn::ConvOptions options;
        options.height = options.width = side;
        options.in = in;
        options.out = config_.channels[i];
        options.kernel_h = options.kernel_w = config_.kernel;
        options.pool_h = options.pool_w = config_.pool;
        options.channels_first = i + 1 == config_.channels.size();
        if (options.channels_first) options.dropout = config_.dropout;
        convs_.emplace_back(store, fmt::format("convs.{}", i), options);
        side /= config_.pool;
        in = options.out;
    }
    const nn::DenseOptions hidden{
        .in = side * side * in, .out = config_.hidden, .activation = ops::Activation::relu, .dropout = config_.dropout};
    hidden_ = nn::Dense(store, {"hidden"}, {}, hidden);
    out_ = nn::Dense(store, {"out"}, {}, {.in = config_.hidden, .out = config_.classes});
    return base::ok();
}

data::Fields Cnn::wants() const {
    return {{"image", data::Field::Kind::real, config_.side * config_.side}, {"label", data::Field::Kind::integer, 1}};
}

Outputs Cnn::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    tape::Value value = builder.activation(rows, config_.side * config_.side, "x", false);
    const tensor::View labels = source.gather(builder, part, rows, {{"image", value.view}, {"label"}})[1];
    for (const nn::Conv& conv : convs_) value = conv.forward(builder, value);
    const tape::Value logits = out_.forward(builder, hidden_.forward(builder, value));
    nn::cross_entropy(builder, logits, labels);
    if (builder.training()) builder.backward();
    return {logits, {}, labels};
}

}  // namespace millrace::models
