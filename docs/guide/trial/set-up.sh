#!/bin/sh
# Makes the shop of the trial on a Debian 12 with the packages apache2, libapache2-mod-php, php-mysql, mariadb-server
# and wordpress (which brings a theme), all with their default settings. As root, in the folder of this file.
set -eu
mysql -e "CREATE DATABASE IF NOT EXISTS wordpress CHARACTER SET utf8mb4;
    CREATE USER IF NOT EXISTS shop@localhost IDENTIFIED BY 'shop'; GRANT ALL ON wordpress.* TO shop@localhost"
cat > /etc/wordpress/config-default.php <<'PHP'
<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'shop');
define('DB_PASSWORD', 'shop');
define('DB_HOST', 'localhost');
define('WP_CONTENT_DIR', '/var/lib/wordpress/wp-content');
define('WP_HOME', 'http://shop.test');
define('WP_SITEURL', 'http://shop.test');
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
$table_prefix = 'wp_';
PHP
chgrp www-data /etc/wordpress/config-default.php
cat > /etc/apache2/sites-available/shop.conf <<'APACHE'
<VirtualHost *:80>
    ServerName shop.test
    DocumentRoot /usr/share/wordpress
    Alias /wp-content /var/lib/wordpress/wp-content
    CustomLog ${APACHE_LOG_DIR}/access.log combined
    <Directory /usr/share/wordpress>
        Require all granted
        FallbackResource /index.php
    </Directory>
    <Directory /var/lib/wordpress/wp-content>
        Require all granted
    </Directory>
</VirtualHost>
APACHE
mkdir -p /var/lib/wordpress/wp-content/mu-plugins
cp shop.php /var/lib/wordpress/wp-content/mu-plugins/
a2dissite -q 000-default
a2ensite -q shop
systemctl reload apache2 || true
php seed.php "$@"
