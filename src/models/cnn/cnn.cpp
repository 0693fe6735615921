#include "models/cnn/cnn.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/families.h"

namespace millrace::models {
namespace {

base::Schema cnn_schema(const std::string& preset) {
    using Widths = std::vector<std::int64_t>;
    const bool debug = preset == "debug";
    base::Schema keys;
    keys.integers("channels", debug ? Widths{8, 16} : Widths{32, 64}, "channels of the convolutions")
        .between(1, 4096)
        .length(1, 16);
    keys.integer("kernel", 3, "side of the kernels, odd").between(1, 15);
    keys.integer("pool", 2, "side of the pooling windows behind every convolution; 1: none").between(1, 8);
    keys.integer("hidden", debug ? 32 : 128, "width of the hidden layer").between(1, 1 << 20);
    keys.real("dropout", 0.25, "behind the last convolution and the hidden layer").at_least(0).below(1);
    return keys;
}

base::Result<std::unique_ptr<Model>> make_cnn(const base::Recipe& recipe, const data::Fields& fields) {
    CnnConfig config;
    MILLRACE_SET(config.task, task_of(recipe, fields));
    if (config.task.input.shape.size() == 0)
        return recipe.bad("model.name", fmt::format("cnn needs images; the data has {}", data::text_of(fields)));
    config.channels.clear();
    for (std::int64_t width : recipe.integers("model.channels")) config.channels.push_back(static_cast<std::int32_t>(width));
    config.kernel = static_cast<std::int32_t>(recipe.integer("model.kernel"));
    if (config.kernel % 2 == 0)
        return recipe.bad("model.kernel", fmt::format("model.kernel = {}; an odd number would be right", config.kernel));
    config.pool = static_cast<std::int32_t>(recipe.integer("model.pool"));
    config.hidden = static_cast<std::int32_t>(recipe.integer("model.hidden"));
    config.dropout = static_cast<float>(recipe.real("model.dropout"));
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
    Family family{"cnn", {"debug", "base"}, cnn_schema, make_cnn};
    family.metrics = regression_metrics();
    family.weighs_classes = true;
    return family;
}

}  // namespace millrace::models
