// Forms that a run has chosen are taken again by one that goes on.

#include <gtest/gtest.h>

#include <algorithm>

#include "data/resident_samples.h"
#include "models/registry.h"
#include "models/tiny_images.h"
#include "train/engine.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

using Names = std::vector<std::string>;

class Forms : public ::testing::Test {
protected:
    void SetUp() override {
        if (auto gpu = ops::cuda_available(); !gpu.ok()) GTEST_SKIP() << gpu.error().text();
    }

    static std::unique_ptr<Engine> engine(const Names& forms, bool deterministic = false) {
        auto made = make(forms, deterministic);
        EXPECT_TRUE(made.ok()) << made.error().text();
        return made.ok() ? std::move(made).value() : nullptr;
    }

    /// Of the kernels that an operator has in the regular step.
    static Names of_kernels(const Engine& engine, const std::string& op) {
        Names forms;
        for (const tape::KernelPlan& kernel : engine.step_program().kernel_plans())
            if (kernel.records.size() == 1 && kernel.records.front().starts_with(op + " ")) forms.push_back(kernel.form);
        return forms;
    }

    /// Every choice about an operator with that form.
    static Names with(Names forms, const std::string& op, const std::string& form) {
        for (std::string& choice : forms)
            if (choice.starts_with(op + " ")) choice = choice.substr(0, choice.rfind('=') + 1) + form;
        return forms;
    }

private:
    static base::Result<std::unique_ptr<Engine>> make(const Names& forms, bool deterministic) {
        MILLRACE_LET(recipe, parse_recipe("", "test", {{"model.name=collective", "model.preset=debug", "train.batch=128"}, {}}));
        auto source = std::make_unique<data::ResidentSamples>(testing::tiny_set(437, 101, 28, 10));
        MILLRACE_LET(settings, read_settings(recipe, source->samples(data::Part::train)));
        MILLRACE_LET(model, models::make(recipe, source->fields()));
        MILLRACE_LET(backend, ops::make_backend(ops::DeviceKind::cuda, {.deterministic = deterministic, .forms = forms}));
        EngineOptions options;
        MILLRACE_LET(precision, choose_precision("auto", ops::DeviceKind::cuda));
        options.precision = precision;
        return Engine::create(std::move(backend), std::move(model), std::move(source), settings, options);
    }
};

TEST_F(Forms, ThatWereChosenAreTakenAgain) {
    const auto first = engine({});
    ASSERT_TRUE(first);
    const Names chosen = first->backend().forms();
    ASSERT_FALSE(chosen.empty());
    EXPECT_LT(chosen.size(), 100u);
    ASSERT_FALSE(of_kernels(*first, "dense_forward").empty());
    const auto again = engine(chosen);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->backend().forms(), chosen);
    EXPECT_EQ(again->step_listing(), first->step_listing());

    const Names others = with(chosen, "dense_forward", "library");
    ASSERT_NE(others, chosen);
    const auto other = engine(others);
    ASSERT_TRUE(other);
    for (const std::string& form : of_kernels(*other, "dense_forward")) EXPECT_EQ(form, "library");
    EXPECT_EQ(other->backend().forms(), others);
}

TEST_F(Forms, ThatCannotBeHadAreChosenAnew) {
    const auto first = engine({});
    ASSERT_TRUE(first);
    const Names chosen = first->backend().forms();
    const auto other = engine(with(chosen, "dense_forward", "of another GPU"));
    ASSERT_TRUE(other);
    EXPECT_EQ(other->backend().forms(), chosen);
}

TEST_F(Forms, OfPinnedRunsGoByPredictionAlone) {
    const auto pinned = engine({}, true);
    ASSERT_TRUE(pinned);
    EXPECT_TRUE(pinned->backend().forms().empty());
    const auto first = engine({});
    ASSERT_TRUE(first);
    const auto given = engine(with(first->backend().forms(), "dense_forward", "library"), true);
    ASSERT_TRUE(given);
    EXPECT_EQ(of_kernels(*given, "dense_forward"), of_kernels(*pinned, "dense_forward"));
}

}  // namespace
}  // namespace millrace::train
