#pragma once
#include <memory>
#include <string>

#include "io/file.h"
#include "record/http_responder.h"

namespace millrace::ui {

struct ServerOptions {
    io::Path folder;
    std::string host;  ///< a numeric address or "localhost"; empty: this machine alone, and no token is asked for
    int port = 0;      ///< 0: any that is free
};

/// The live page of a folder, for as long as it lives. One thread, which reads the folder when a browser asks.
class Server {
public:
    static base::Result<std::unique_ptr<Server>> start(const ServerOptions& options);

    /// To be opened in a browser; with the token, where there is one.
    [[nodiscard]] std::string address() const;
    [[nodiscard]] int port() const { return responder_->port(); }
    [[nodiscard]] const std::string& token() const { return token_; }

private:
    Server(std::string token, std::unique_ptr<record::HttpResponder> responder)
        : token_(std::move(token)), responder_(std::move(responder)) {}

    std::string token_;
    std::unique_ptr<record::HttpResponder> responder_;
};

}  // namespace millrace::ui
