#include "models/families.h"

#include <fmt/format.h>

#include <cmath>

#include "models/cnn/cnn.h"

namespace millrace::models {
namespace {

base::Schema schema_of(const std::string& preset) {
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
    const data::Field *image = data::find_field(fields, "image"), *label = data::find_field(fields, "label");
    if (image != nullptr) config.side = static_cast<std::int32_t>(std::lround(std::sqrt(image->width)));
    if (image != nullptr && config.side * config.side != image->width)
        return recipe.bad("model.name", fmt::format("cnn needs square images; these have {} pixels", image->width));
    if (label != nullptr) config.classes = label->limit;
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

Family cnn_family() { return {"cnn", {"debug", "base"}, schema_of, make_cnn}; }

}  // namespace millrace::models
