#include "models/cnn/cnn.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/keys.h"

namespace millrace::models {
namespace {

void cnn_keys(Keys& keys, CnnConfig& c) {
    keys.add("channels", c.channels, "channels of the convolutions").between(1, 4096).length(1, 16);
    keys.add("kernel", c.kernel, "side of the kernels, odd").between(1, 15);
    keys.add("pool", c.pool, "side of the pooling windows behind every convolution; 1: none").between(1, 8);
    keys.add("hidden", c.hidden, "width of the hidden layer").between(1, 1 << 20);
    keys.add("dropout", c.dropout, "behind the last convolution and the hidden layer").at_least(0).below(1);
}

base::Result<std::unique_ptr<Model>> make_cnn(const base::Recipe& recipe, const data::Fields& fields) {
    CnnConfig config = read_keys(cnn_keys, recipe);
    MILLRACE_SET(config.task, task_of(recipe, fields));
    if (config.task.input.shape.size() == 0)
        return recipe.bad("model.name", fmt::format("cnn needs images; the data has {}", data::text_of(fields)));
    if (config.kernel % 2 == 0)
        return recipe.bad("model.kernel", fmt::format("model.kernel = {}; an odd number would be right", config.kernel));
    return std::unique_ptr<Model>(std::make_unique<Cnn>(std::move(config)));
}

}  // namespace

base::Status Cnn::declare(tape::Store& store) {
    config_.task.declare(store);
    convs_.clear();
    const data::Shape& image = config_.task.input.shape;
    std::int32_t height = image.height, width = image.width, in = image.channels;
    for (std::size_t i = 0; i < config_.channels.size(); ++i) {
        if (std::min(height, width) < config_.pool)
            return base::Error{fmt::format("model.channels has {} layers, but images of {} x {} are pooled away after {}",
                                           config_.channels.size(), image.height, image.width, i)};
        nn::ConvOptions options;
        options.height = height;
        options.width = width;
        options.in = in;
        options.out = config_.channels[i];
        options.kernel_h = options.kernel_w = config_.kernel;
        options.pool_h = options.pool_w = config_.pool;
        options.channels_first = i + 1 == config_.channels.size();
        if (options.channels_first) options.dropout = config_.dropout;
        convs_.emplace_back(store, fmt::format("convs.{}", i), options);
        height /= config_.pool;
        width /= config_.pool;
        in = options.out;
    }
    const nn::DenseOptions hidden{
        .in = height * width * in, .out = config_.hidden, .activation = ops::Activation::relu, .dropout = config_.dropout};
    hidden_ = nn::Dense(store, {"hidden"}, {}, hidden);
    out_ = nn::Dense(store, {"out"}, {}, {.in = config_.hidden, .out = config_.task.outputs});
    return base::ok();
}

Outputs Cnn::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    tape::Value value = builder.activation(rows, config_.task.input.width, "x", false);
    const tensor::View answers = config_.task.gather(builder, source, part, rows, value.view);
    for (const nn::Conv& conv : convs_) value = conv.forward(builder, value);
    return config_.task.judge(builder, out_.forward(builder, hidden_.forward(builder, value)), answers);
}

Family cnn_family() {
    const auto schema = [](const std::string& preset) {
        return schema_of(cnn_keys, preset == "debug" ? CnnConfig{.channels = {8, 16}, .hidden = 32} : CnnConfig{});
    };
    return task_family("cnn", {"debug", "base"}, schema, make_cnn);
}

}  // namespace millrace::models
