#include "diagnose/timeline/frames.h"

#include <gtest/gtest.h>

namespace millrace::diagnose {
namespace {

TEST(Frames, TellTheUsersCodeFromLibraries) {
    for (const char* library : {"/usr/lib/python3.11/json/encoder.py", "/home/u/.venv/lib/python3.12/site-packages/numpy/core.py",
                                "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", "<frozen importlib._bootstrap>", "",
                                "torch/optim/adamw.py", "/opt/pytorch/torch/nn/functional.py"})
        EXPECT_TRUE(is_library(library)) << library;
    for (const char* own : {"/home/u/train.py", "train.py", "/home/u/torch/train.py", "/home/u/my_torch/nn.py", "<stdin>",
                            "/home/u/python3/model.py"})
        EXPECT_FALSE(is_library(own)) << own;
}

TEST(Frames, NamesThatTheProfilerTrimmedAreKnown) {
    for (const char* library : {"typing.py", "threading.py", "logging/__init__.py", "numpy/_core/fromnumeric.py",
                                "ctypes/__init__.py", "transformers/trainer.py", "torch/_tensor.py", "_virtualenv.py"})
        EXPECT_TRUE(is_library(library)) << library;
    for (const char* own : {"train.py", "bench.py", "models/net.py", "datasets/mnist.py", "numpy_loader.py", "my/typing.py",
                            "./json/a.py", "/home/u/typing.py", "/home/u/transformers/trainer.py"})
        EXPECT_FALSE(is_library(own)) << own;
}

TEST(Frames, AnEnvironmentMayHaveTheNameOfAPackage) {
    EXPECT_EQ(framework_in("/opt/torch/.venv/lib/python3.12/site-packages/jax/_src/pjit.py"), Framework::kJax);
    EXPECT_EQ(framework_in("/opt/jax/torch/nn/.venv/lib/python3.12/site-packages/torchmetrics/metric.py"), std::nullopt);
    EXPECT_EQ(framework_in("/opt/jax/.venv/lib/python3.12/site-packages/transformers/trainer.py"), Framework::kTrainer);
    EXPECT_EQ(framework_in("/opt/pytorch/torch/optim/adam.py"), Framework::kPyTorch);
}

TEST(Frames, TheInnermostOfTheUsersIsTheirs) {
    const Frame library{"/usr/lib/python3/dist-packages/torch/_tensor.py", 5, "backward", false};
    const Frame inner{"/home/u/model.py", 7, "forward", false}, outer{"/home/u/train.py", 9, "<module>", false};
    EXPECT_EQ(user_frame({library, inner, library, outer}), 1u);
    EXPECT_FALSE(user_frame({library, library}));
    EXPECT_FALSE(user_frame({}));
    // A native program has its own library or binary, and never the runtime's.
    EXPECT_EQ(user_frame({{"/usr/lib/libcudart.so.12", 0, "cudaLaunchKernel", true}, {"/home/u/trainer", 0, "step()", true}}),
              1u);
    EXPECT_FALSE(user_frame({{"/usr/lib/libcuda.so.1", 0, "", true}}));
}

TEST(Frames, PlacesOfOneFunctionShareIt) {
    Timeline timeline;
    timeline.stacks = {{},
                       {{"a.py", 1, "f", false}},
                       {{"a.py", 2, "f", false}},
                       {{"a.py", 2, "g", false}},
                       {{"a.py", 1, "f", false}, {"b.py", 3, "h", false}}};
    const Places places(timeline);
    EXPECT_EQ(places.of_stack(0), kNoPlace);
    EXPECT_EQ(places.of_stack(1), places.of_stack(4));
    EXPECT_NE(places.of_stack(1), places.of_stack(2));
    EXPECT_EQ(places.function(places.of_stack(1)), places.function(places.of_stack(2)));
    EXPECT_NE(places.function(places.of_stack(2)), places.function(places.of_stack(3)));
    EXPECT_EQ(places.of_stack(99), kNoPlace);
}

TEST(Frames, LambdasAndComprehensionsBelongToTheFunctionThatCallsThem) {
    const Frame shim{"<shim>", 0, "<interpreter trampoline>", false}, f{"a.py", 4, "f", false};
    const Frame key{"a.py", 4, "<lambda>", false}, list{"a.py", 5, "<listcomp>", false};
    const Frame library{"/usr/lib/python3.11/functools.py", 9, "reduce", false};
    Timeline timeline;
    timeline.stacks = {
        {}, {f}, {key, shim, f}, {list, key, f}, {{"a.py", 9, "<lambda>", false}, library, f}, {{"a.py", 7, "<module>", false}}};
    const Places places(timeline);
    const auto function = [&](std::uint32_t stack) { return places.function(places.of_stack(stack)); };
    EXPECT_EQ(places.of_stack(1), places.of_stack(2)) << "what a line does is told once, by the function that a person looks for";
    EXPECT_EQ(places.frame(places.of_stack(3)).function, "f");
    EXPECT_EQ(function(1), function(2));
    EXPECT_EQ(function(1), function(3));
    EXPECT_NE(function(1), function(4)) << "a library calls it";
    EXPECT_NE(function(1), function(5));
}

TEST(Frames, AStackThatWasCutOffBehindAComprehensionBelongsToItsLine) {
    const Frame f{"a.py", 4, "f", false}, generator{"a.py", 4, "<genexpr>", false}, other{"a.py", 9, "<genexpr>", false};
    Timeline timeline;
    timeline.stacks = {{generator}, {generator, f}, {f}, {other}};
    const Places places(timeline);
    EXPECT_EQ(places.of_stack(0), places.of_stack(1));
    EXPECT_EQ(places.of_stack(0), places.of_stack(2));
    EXPECT_EQ(places.frame(places.of_stack(0)).function, "f");
    EXPECT_NE(places.function(places.of_stack(3)), places.function(places.of_stack(0))) << "nobody was seen to call it";
}

TEST(Frames, LoadersAndWritersAreKnown) {
    EXPECT_TRUE(is_loader({"/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", 1, "__next__", false}));
    EXPECT_TRUE(is_loader({"/usr/lib/python3.11/queue.py", 1, "get", false}));
    EXPECT_FALSE(is_loader({"/usr/lib/python3.11/queue.py", 1, "put", false}));
    EXPECT_TRUE(is_output({"/usr/lib/python3/dist-packages/torch/serialization.py", 1, "save", false}));
    EXPECT_FALSE(is_output({"/usr/lib/python3/dist-packages/torch/serialization.py", 1, "load", false}));
    EXPECT_FALSE(is_framework("/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py"));
    // As traces have them, without the folder.
    EXPECT_TRUE(is_loader({"multiprocessing/queues.py", 1, "get", false}));
    for (const char* file : {"csv.py", "json/encoder.py", "logging/__init__.py", "tqdm/std.py", "zipfile.py"})
        EXPECT_TRUE(is_output({file, 1, "write", false})) << file;
    EXPECT_FALSE(is_output({"my_csv.py", 1, "write", false}));
    EXPECT_TRUE(is_framework("contextlib.py"));
}

TEST(Frames, TheBackwardPassIsKnown) {
    EXPECT_TRUE(is_backward({"/usr/lib/python3/dist-packages/torch/autograd/graph.py", 869, "_engine_run_backward", false}));
    EXPECT_TRUE(is_backward({"torch/autograd/__init__.py", 200, "backward", false}));
    EXPECT_FALSE(is_backward({"torch/autograd/function.py", 575, "apply", false}));
    EXPECT_FALSE(is_backward({"/home/u/model.py", 7, "backward", false}));
}

}  // namespace
}  // namespace millrace::diagnose
