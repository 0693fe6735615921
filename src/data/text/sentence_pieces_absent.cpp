// Tokenizers of a build without SentencePiece.

#include "data/text/tokenizer.h"

namespace millrace::data {
namespace {

base::Error absent() {
    return base::Error{
        "this millrace was built without SentencePiece, which the text bridge needs: install Debian's libsentencepiece-dev "
        "(tools/setup "
        "does) and build again, or leave the bridge off (model.text_bridge.enabled = false)"};
}

}  // namespace

bool Tokenizer::available() { return false; }
base::Result<Tokenizer> Tokenizer::train(const std::vector<std::string>&, std::int32_t) { return absent(); }
// NOLINTNEXTLINE(performance-unnecessary-value-param): the signature of the build with SentencePiece
base::Result<Tokenizer> Tokenizer::load_pieces(std::string, const std::string&) { return absent(); }

}  // namespace millrace::data
