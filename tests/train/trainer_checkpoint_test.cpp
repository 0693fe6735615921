// What lies in the checkpoints of a run.

#include <cstring>

#include "io/checkpoint.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

using Trainer = TinyRun;

TEST_F(Trainer, WeightsCarryPyTorchNames) {
    ASSERT_TRUE(run("a", {"train.steps=3"}).ok());
    const auto loaded = io::load_checkpoint(folder_ / "a/checkpoints/last");
    ASSERT_TRUE(loaded.ok());
    const io::SafetensorsFile& model = loaded->members.at(0).model;
    std::size_t counters = 0;
    for (const io::TensorView& tensor : model.tensors())
        if (tensor.name.ends_with("num_batches_tracked")) {
            ++counters;
            std::int64_t value = 0;
            const auto bytes = model.read(tensor);
            ASSERT_TRUE(bytes.ok());
            std::memcpy(&value, bytes->data(), sizeof value);
            EXPECT_EQ(value, 3);
            EXPECT_TRUE(tensor.shape.empty());
        }
    EXPECT_GT(counters, 0u);
    ASSERT_TRUE(loaded->members[0].optimizer.has_value());
    EXPECT_TRUE(loaded->members[0].optimizer->tensors().front().name.ends_with(".exp_avg"));
}

TEST_F(Trainer, CorruptedStateIsRefused) {
    ASSERT_TRUE(run("a", {"train.steps=2"}).ok());
    const auto file = folder_ / "a/checkpoints/last/model.safetensors";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    const auto refused = run("a", {"train.steps=4"}, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("model.safetensors"), std::string::npos) << refused.error().text();
}

}  // namespace
}  // namespace millrace::train
