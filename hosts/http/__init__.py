"""The HTTP server: operations, their routes and their OpenAPI document, authentication, and live reads."""
