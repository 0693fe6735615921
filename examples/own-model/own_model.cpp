// A model of one's own, trained from a plain C++ program: own_model [STEPS]. docs/own-model.md walks through it.
#include <fmt/format.h>

#include <cstdlib>

#include "data/images/garments.h"
#include "data/images/resident_images.h"
#include "nn/dense.h"
#include "nn/layer_norm.h"
#include "nn/losses.h"
#include "ops/activation.h"
#include "tape/program.h"
#include "train/step_program.h"

using namespace millrace;

class TwoLayers final : public models::Model {
public:
    base::Status declare(tape::Store& store) override {
        hidden_ = nn::Dense(store, {"hidden"}, {}, {.in = 784, .out = 64, .activation = ops::Activation::gelu, .dropout = 0.1f});
        norm_ = nn::LayerNorm(store, "norm", 64);
        out_ = nn::Dense(store, {"out"}, {}, {.in = 64, .out = 10});
        return base::ok();
    }
    void build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override {
        const tape::Value x = builder.activation(rows, 784, "x", /*needs_gradient=*/false);
        const tensor::View labels = source.gather(builder, part, x.view);
        logits_ = out_.forward(builder, norm_.forward(builder, hidden_.forward(builder, x)));
        nn::cross_entropy(builder, logits_, labels);
        if (builder.training()) builder.backward();
    }

private:
    nn::Dense hidden_, out_;
    nn::LayerNorm norm_;
};

data::LabeledImages draw(std::uint32_t first, std::uint32_t count) {
    data::LabeledImages images{
        count, data::kGarmentSide, data::kGarmentSide, std::vector<std::uint8_t>(count * data::kGarmentPixels), {}};
    for (std::uint32_t i = 0; i < count; ++i) {
        data::draw_garment(42, first + i,
                           std::span(images.pixels).subspan(i * data::kGarmentPixels).first<data::kGarmentPixels>());
        images.labels.push_back(data::garment_label(first + i));
    }
    return images;
}

base::Result<bool> train_for(int steps) {
    data::ImageSet set{"garments", data::kGarmentClasses, {0.21, 0.27}, draw(0, 2000), draw(data::kGarmentTestBase, 500), {}};
    set.split = data::split_validation(set.train.count, 0.1);  // 1800 images to train on
    data::ResidentImages source(std::make_shared<const data::ImageSet>(std::move(set)));
    TwoLayers model;
    optim::OptimizerSettings settings{.lr = {3e-3}};

    MILLRACE_LET(backend, ops::make_backend(ops::DeviceKind::cpu, {}));
    tape::Store store(*backend, {});
    MILLRACE_TRY(model.declare(store));
    MILLRACE_TRY(source.declare(store));
    MILLRACE_TRY(store.allocate());
    MILLRACE_TRY(source.upload(store));
    store.initialize({42});  // the seed
    auto states = store.read_states();
    optim::apply(settings, states);
    store.write_states(states);

    tape::Arena arena(*backend);
    tape::Program step("step", store, train::build_training_step(store, model, source, settings, {.rows = 60, .full = 1}), arena);
    tape::Program test("test", store, train::build_evaluation(store, model, source, data::Part::test, 500), arena);
    MILLRACE_TRY(arena.allocate());
    MILLRACE_TRY(step.prepare());
    MILLRACE_TRY(test.prepare());

    double first = 0, loss = 0;
    for (int s = 0; s < steps; ++s) {
        step.launch();
        const ops::MemberState now = store.read_states()[0];  // waits; a real loop reads the metrics ring instead
        loss = now.loss / now.rows;
        if (s == 0) first = loss;
        if (s % 30 == 0 || s + 1 == steps) fmt::print("step {:4}  loss {:.4f}\n", now.step, loss);
    }
    states = store.read_states();
    states[0].eval_position = states[0].rows = states[0].correct = 0;
    store.write_states(states);
    test.launch();
    const ops::MemberState tested = store.read_states()[0];
    fmt::print("test accuracy {:.1f} % of {} images\n", 100.0 * tested.correct / tested.rows, tested.rows);
    return loss < 0.7 * first;
}

int main(int argc, char** argv) {
    auto fell = train_for(argc > 1 ? std::atoi(argv[1]) : 300);
    if (!fell.ok()) {
        fmt::print(stderr, "own_model: {}\n", fell.error().text());
        return fell.error().exit_status;
    }
    return *fell ? 0 : 1;  // a loss that did not fall is a failure
}
