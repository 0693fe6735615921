// The tokenizer of a build without SentencePiece.

#include "data/pairs/tokenizer.h"

namespace millrace::data {
namespace {

base::Error absent() {
    return base::Error{
        "this millrace was built without SentencePiece, which the text bridge needs: install Debian's libsentencepiece-dev "
        "(tools/setup "
        "does) and build again, or leave the bridge off (model.text_bridge.enabled = false)"};
}

}  // namespace

struct Tokenizer::Model {};

Tokenizer::Tokenizer(std::unique_ptr<Model> model, std::string bytes, std::int32_t vocabulary)
    : model_(std::move(model)), bytes_(std::move(bytes)), vocabulary_(vocabulary) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

bool Tokenizer::available() { return false; }
base::Result<Tokenizer> Tokenizer::train(const std::vector<std::string>&, std::int32_t) { return absent(); }
// NOLINTNEXTLINE(performance-unnecessary-value-param): the signature of the build with SentencePiece
base::Result<Tokenizer> Tokenizer::load(std::string, const std::string&) { return absent(); }
std::vector<std::int32_t> Tokenizer::encode(std::string_view) const { return {}; }
std::string Tokenizer::decode(std::span<const std::int32_t>) const { return {}; }

}  // namespace millrace::data
