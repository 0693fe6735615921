#include "train/stored_sentences.h"

#include <fmt/format.h>

#include "models/energy_flow/text_bridge.h"

namespace millrace::train {
namespace {

using models::TextBridge;

constexpr std::int64_t kMostPlaces = 1 << 20;

base::Result<std::int32_t> rows_of(const io::SafetensorsFile& file, const char* name, std::int32_t beside) {
    const io::TensorView* tensor = file.find(name);
    if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[0] <= beside || tensor->shape[0] > kMostPlaces)
        return base::Error{fmt::format("tensor {} is missing or of another shape; the file is of another model", name),
                           file.place()};
    return static_cast<std::int32_t>(tensor->shape[0]) - beside;
}

}  // namespace

base::Result<data::SentenceShape> stored_sentences(const io::LoadedCheckpoint& checkpoint) {
    data::SentenceShape shape;
    const io::SafetensorsFile& file = checkpoint.members.front().model;
    const io::TensorView* bytes = file.find(TextBridge::kTokenizer);
    if (bytes == nullptr) return shape;
    if (bytes->type != io::ElementType::kU8)
        return base::Error{fmt::format("tensor {} is no list of bytes", TextBridge::kTokenizer), file.place()};
    MILLRACE_LET(tokenizer, data::Tokenizer::load(std::string(reinterpret_cast<const char*>(bytes->data), bytes->bytes),
                                                  fmt::format("{}: {}", file.place().string(), TextBridge::kTokenizer)));
    shape.tokenizer = std::make_shared<const data::Tokenizer>(std::move(tokenizer));
    MILLRACE_LET(inputs, rows_of(file, TextBridge::kEncoderPlaces, 0));
    MILLRACE_LET(targets, rows_of(file, TextBridge::kDecoderPlaces, TextBridge::kPrefix));
    shape.input_tokens = inputs;
    shape.target_tokens = targets;
    return shape;
}

}  // namespace millrace::train
