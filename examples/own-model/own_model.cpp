// A model of one's own with every command of the binary: own_model train recipe.toml. docs/own-model.md walks through it.
#include <cli/commands.h>
#include <models/registry.h>
#include <nn/dense.h>
#include <nn/layer_norm.h>
#include <nn/losses.h>

using namespace millrace;

class TwoLayers final : public models::Model {
public:
    TwoLayers(std::int32_t pixels, std::int32_t hidden, std::int32_t classes)
        : pixels_(pixels), width_(hidden), classes_(classes) {}

    base::Status declare(tape::Store& store) override {
        hidden_ = nn::Dense(store, {"hidden"}, {},
                            {.in = pixels_, .out = width_, .activation = ops::Activation::gelu, .dropout = 0.1f});
        norm_ = nn::LayerNorm(store, "norm", width_);
        out_ = nn::Dense(store, {"out"}, {}, {.in = width_, .out = classes_});
        return base::ok();
    }
    data::Fields wants() const override {
        return {{"image", data::Field::Kind::real, pixels_}, {"label", data::Field::Kind::integer, 1}};
    }
    models::Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override {
        const tape::Value x = builder.activation(rows, pixels_, "x", /*needs_gradient=*/false);
        const tensor::View labels = source.gather(builder, part, rows, {{"image", x.view}, {"label"}})[1];
        const tape::Value logits = out_.forward(builder, norm_.forward(builder, hidden_.forward(builder, x)));
        const tensor::View predicted = nn::cross_entropy(builder, logits, labels);
        if (builder.training()) builder.backward();
        return {logits, {}, labels, predicted};
    }

private:
    std::int32_t pixels_, width_, classes_;
    nn::Dense hidden_, out_;
    nn::LayerNorm norm_;
};

base::Schema keys_of(const std::string& preset) {
    base::Schema keys;
    keys.integer("hidden", preset == "small" ? 64 : 512, "width of the hidden layer").between(1, 65536);
    return keys;
}

base::Result<std::unique_ptr<models::Model>> make(const base::Recipe& recipe, const data::Fields& fields) {
    const data::Field *image = data::find_field(fields, "image"), *label = data::find_field(fields, "label");
    if (image == nullptr || label == nullptr) return base::Error{"two_layers is trained on images with labels"};
    const auto hidden = static_cast<std::int32_t>(recipe.integer("model.hidden"));
    return std::unique_ptr<models::Model>(std::make_unique<TwoLayers>(image->width, hidden, label->limit));
}

int main(int argc, char** argv) {
    models::add_family({.name = "two_layers", .presets = {"small", "wide"}, .schema = keys_of, .make = make});
    return cli::run(argc, argv);
}
